import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type LeaseEnd, LeaseBook, type LeaseTimers } from './leases.ts'

/** A clock that the test advances, with timers that fire when it passes them. */
function handClock() {
  let nowMs = 0
  const timers = new Set<{ atMs: number; run: () => void }>()
  const of: LeaseTimers = {
    set(run, ms) {
      const timer = { atMs: nowMs + ms, run }
      timers.add(timer)
      return timer
    },
    clear: timer => void timers.delete(timer as { atMs: number; run: () => void }),
  }
  return {
    timers: of,
    nowMs: () => nowMs,
    /** Timers do not fire if `late`, as on a busy machine. */
    move(ms: number, late = false) {
      nowMs += ms
      if (late) return
      for (const timer of [...timers].filter(({ atMs }) => atMs <= nowMs).toSorted((a, b) => a.atMs - b.atMs))
        if (timers.delete(timer)) timer.run()
    },
    get pending() {
      return timers.size
    },
  }
}

function bookOf(leaseMs = 900) {
  const clock = handClock()
  const ends: [string, LeaseEnd][] = []
  const released: string[] = []
  const book = new LeaseBook({ leaseMs, ...clock, onEnd: (id, end) => ends.push([id, end]) })
  const keep = (id: string, blocks = 2) =>
    book.keep(id, {
      promptHash: 'p',
      blocks: {
        id,
        blockIds: Array.from({ length: blocks }, (_, i) => i),
        tokens: 1,
        export: () => ({ bytes: new Uint8Array(), tokens: 1 }),
        release: () => void released.push(id),
      },
    })
  return { clock, book, ends, released, keep }
}

describe('leases of KV blocks', () => {
  it('last for their duration and free the blocks on expiry', () => {
    const { clock, book, ends, released, keep } = bookOf(900)
    keep('a')
    clock.move(899)
    expect([book.find('a') !== undefined, book.size, book.blocks]).toEqual([true, 1, 2])
    clock.move(1)
    expect([book.find('a'), released, ends, clock.pending]).toEqual([undefined, ['a'], [['a', 'expired']], 0])
  })

  it('expire on time even if the timer is late', () => {
    const { clock, book, released, keep } = bookOf(900)
    keep('a')
    clock.move(900, true)
    expect(book.find('a')).toBeUndefined()
    expect(book.renew('a')).toBe(false)
    expect(released).toEqual(['a'])
  })

  it('are extended to two thirds of their duration from now, never shortened', () => {
    const { clock, book, released, keep } = bookOf(900)
    keep('a')
    expect(book.renew('a')).toBe(true)
    clock.move(899)
    expect(book.renew('a')).toBe(true)
    clock.move(599)
    expect(released).toEqual([])
    clock.move(1)
    expect(released).toEqual(['a'])
  })

  it('end exactly once, whatever happens at the same time', () => {
    const { clock, book, ends, released, keep } = bookOf()
    keep('a')
    expect([book.end('a', 'read'), book.end('a', 'released'), book.renew('a')]).toEqual([true, false, false])
    clock.move(10_000)
    book.close()
    expect([released, ends]).toEqual([['a'], [['a', 'read']]])
  })

  it('cannot share an id', () => {
    const { keep } = bookOf()
    keep('a')
    expect(() => keep('a')).toThrow('already has a lease')
  })

  it('free every block once, in any order of events', () => {
    const event = fc.record({
      what: fc.constantFrom('keep', 'renew', 'read', 'release', 'move', 'late'),
      id: fc.nat({ max: 5 }),
      ms: fc.nat({ max: 700 }),
    })
    fc.assert(
      fc.property(fc.array(event, { maxLength: 60 }), events => {
        const { clock, book, released, keep } = bookOf(500)
        let kept = 0
        for (const { what, id, ms } of events) {
          const name = `${id}`
          if (what === 'keep' && book.find(name) === undefined) {
            keep(name)
            kept++
          } else if (what === 'renew') book.renew(name)
          else if (what === 'read') book.end(name, 'read')
          else if (what === 'release') book.end(name, 'released')
          else if (what !== 'keep') clock.move(ms, what === 'late')
          expect(released.length + book.size).toBe(kept)
          expect(clock.pending).toBe(book.size)
        }
        book.close()
        expect([released.length, book.size, clock.pending]).toEqual([kept, 0, 0])
      }),
    )
  })
})
