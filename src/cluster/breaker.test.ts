import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Breaker, type BreakerLimits, type BreakerState, type Pass, WINDOW_PARTS } from './breaker.ts'

const LIMITS: BreakerLimits = {
  consecutiveFailures: 3,
  windowMs: 1000,
  windowRequests: 10,
  windowFailureShare: 0.5,
  openMs: 500,
}

type Outcome = 'succeeded' | 'failed' | 'ignored'
const end = (pass: Pass | false, outcome: Outcome, nowMs: number) => pass !== false && pass[outcome](nowMs)
const opened = () => {
  const breaker = new Breaker(LIMITS)
  for (let n = 0; n < 3; n++) end(breaker.allow(0), 'failed', 0)
  return breaker
}

/** A reference implementation that keeps every end and checks all of them each time. */
class SlowBreaker {
  state: BreakerState = 'closed'
  ends: { atMs: number; failed: boolean }[] = []
  openedMs = 0
  probe?: object
  readonly limits: BreakerLimits

  constructor(limits: BreakerLimits) {
    this.limits = limits
  }

  allow(nowMs: number): object | false {
    if (this.state === 'open' && nowMs - this.openedMs < this.limits.openMs) return false
    if (this.state === 'half_open' && this.probe !== undefined) return false
    if (this.state === 'closed') return {}
    this.state = 'half_open'
    return (this.probe = {})
  }

  end(pass: object, outcome: Outcome, nowMs: number): void {
    if (pass === this.probe) {
      delete this.probe
      if (outcome === 'succeeded') [this.state, this.ends] = ['closed', []]
      if (outcome === 'failed') [this.state, this.openedMs] = ['open', nowMs]
      return
    }
    if (this.state !== 'closed' || outcome === 'ignored') return
    this.ends.push({ atMs: nowMs, failed: outcome === 'failed' })
    const { consecutiveFailures, windowMs, windowRequests, windowFailureShare } = this.limits
    const part = (atMs: number) => Math.floor(atMs / (windowMs / WINDOW_PARTS))
    const recent = this.ends.filter(({ atMs }) => part(atMs) > part(nowMs) - WINDOW_PARTS)
    const inRow = this.ends.length - 1 - this.ends.findLastIndex(({ failed }) => !failed)
    const share = recent.filter(({ failed }) => failed).length / recent.length
    if (
      outcome === 'failed' &&
      (inRow >= consecutiveFailures || (recent.length >= windowRequests && share >= windowFailureShare))
    )
      [this.state, this.openedMs] = ['open', nowMs]
  }
}

describe('a breaker', () => {
  it('behaves like the reference implementation', () => {
    const step = fc.record({
      waitMs: fc.oneof({ weight: 24, arbitrary: fc.nat(4) }, { weight: 1, arbitrary: fc.nat(1200) }),
      do: fc.oneof(
        { weight: 2, arbitrary: fc.constant('allow' as const) },
        { weight: 3, arbitrary: fc.constantFrom<Outcome>('succeeded', 'failed', 'ignored') },
      ),
      which: fc.nat(),
    })
    const limits = fc.record({
      consecutiveFailures: fc.integer({ min: 1, max: 6 }),
      windowMs: fc.constantFrom(100, 1000),
      windowRequests: fc.integer({ min: 1, max: 12 }),
      windowFailureShare: fc.constantFrom(0.25, 0.5, 1),
      openMs: fc.constantFrom(0, 50, 500),
    })
    fc.assert(
      fc.property(limits, fc.array(step, { maxLength: 150 }), (limits, steps) => {
        const seen: BreakerState[] = []
        const breaker = new Breaker(limits, state => seen.push(state))
        const slow = new SlowBreaker(limits)
        const out: { pass: Pass; slowPass: object }[] = []
        let nowMs = 0
        for (const { waitMs, do: action, which } of steps) {
          nowMs += waitMs
          const before = slow.state
          const would = breaker.wouldAllow(nowMs)
          const pass = action === 'allow' && breaker.allow(nowMs)
          const slowPass = action === 'allow' && slow.allow(nowMs)
          expect(pass !== false).toBe(slowPass !== false)
          expect(would || action !== 'allow').toBe(pass !== false || action !== 'allow')
          if (pass !== false && slowPass !== false) out.push({ pass, slowPass })
          const [ended] = action === 'allow' ? [] : out.splice(which % Math.max(1, out.length), 1)
          if (action !== 'allow' && ended !== undefined) {
            ended.pass[action](nowMs)
            slow.end(ended.slowPass, action, nowMs)
          }
          const due = slow.state === 'open' && nowMs - slow.openedMs >= limits.openMs
          expect(breaker.stateAt(nowMs)).toBe(due ? 'half_open' : slow.state)
          expect(seen.splice(0)).toEqual(slow.state === before ? [] : [slow.state])
        }
      }),
      { numRuns: 400 },
    )
  })

  it('opens on consecutive failures, and on their share in a window with enough requests', () => {
    const rare = new Breaker({ ...LIMITS, consecutiveFailures: 100 })
    for (let n = 0; n < 9; n++) end(rare.allow(n), n % 2 === 0 ? 'failed' : 'succeeded', n)
    expect(rare.stateAt(9)).toBe('closed')
    end(rare.allow(9), 'failed', 9)
    expect(rare.stateAt(9)).toBe('open')
    expect(opened().stateAt(0)).toBe('open')
  })

  it('is not opened by failures older than the window', () => {
    for (let firstMs = 0; firstMs < 1000; firstMs += 100) {
      for (const laterMs of [firstMs + 1000, firstMs + 1450, 5000, 5900]) {
        const breaker = new Breaker({ ...LIMITS, consecutiveFailures: 100 })
        for (let n = 0; n < 9; n++) end(breaker.allow(firstMs), 'failed', firstMs)
        end(breaker.allow(laterMs), 'failed', laterMs)
        expect(breaker.stateAt(laterMs)).toBe('closed')
      }
    }
  })

  it('lets no second request through while its probe runs, however long that streams', () => {
    const breaker = opened()
    expect([breaker.wouldAllow(499), breaker.allow(499)]).toEqual([false, false])
    const probe = breaker.allow(500)
    expect([breaker.wouldAllow(500), breaker.allow(500), breaker.allow(9e6)]).toEqual([false, false, false])
    end(probe, 'succeeded', 9e6)
    expect([breaker.stateAt(9e6), breaker.wouldAllow(9e6)]).toEqual(['closed', true])
  })

  it('does not lose its probe to a query: only a sent request takes it (sgl-router: would_allow and allow)', () => {
    const breaker = opened()
    for (let n = 0; n < 5; n++) expect(breaker.wouldAllow(500)).toBe(true)
    expect(breaker.allow(500)).not.toBe(false)
  })

  it('does not stay open because the client of its probe left: the next request is a probe', () => {
    const breaker = opened()
    end(breaker.allow(500), 'ignored', 510)
    expect([breaker.stateAt(510), breaker.wouldAllow(510)]).toEqual(['half_open', true])
    end(breaker.allow(510), 'failed', 520)
    expect([breaker.stateAt(1019), breaker.stateAt(1020)]).toEqual(['open', 'half_open'])
  })

  it('is not opened by 4xx responses', () => {
    const breaker = new Breaker(LIMITS)
    for (let n = 0; n < 100; n++) end(breaker.allow(n), 'ignored', n)
    expect(breaker.stateAt(100)).toBe('closed')
  })

  it('is neither closed nor kept open by requests from before it opened', () => {
    const breaker = new Breaker(LIMITS)
    const early = Array.from({ length: 5 }, () => breaker.allow(0))
    for (const pass of early.slice(0, 3)) end(pass, 'failed', 10)
    end(early[3]!, 'succeeded', 20)
    expect(breaker.stateAt(20)).toBe('open')
    const probe = breaker.allow(510)
    end(early[4]!, 'failed', 511)
    expect([breaker.stateAt(511), breaker.allow(511)]).toEqual(['half_open', false])
    end(probe, 'succeeded', 520)
    expect(breaker.stateAt(520)).toBe('closed')
  })

  it('counts a request once', () => {
    const breaker = new Breaker(LIMITS)
    const pass = breaker.allow(0)
    for (let n = 0; n < 9; n++) end(pass, 'failed', n)
    expect(breaker.stateAt(9)).toBe('closed')
  })

  it('forgets its failures when it closes, both consecutive ones and those in the window', () => {
    const rows = opened()
    const windows = new Breaker({ ...LIMITS, consecutiveFailures: 100 })
    for (let n = 0; n < 10; n++) end(windows.allow(0), 'failed', 0)
    for (const breaker of [rows, windows]) {
      end(breaker.allow(500), 'succeeded', 500)
      for (let n = 0; n < 2; n++) end(breaker.allow(501), 'failed', 501)
      expect(breaker.stateAt(501)).toBe('closed')
    }
  })
})
