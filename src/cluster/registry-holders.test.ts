import { describe, expect, it } from 'vitest'
import { Registry, type RegistryEvent } from './registry.ts'
import { LoadTracker } from './tickets.ts'

const LIMITS = {
  consecutiveFailures: 5,
  windowMs: 30_000,
  windowRequests: 20,
  windowFailureShare: 0.5,
  openMs: 10_000,
}

function start() {
  const registry = new Registry(new LoadTracker(), LIMITS)
  const heard: string[] = []
  registry.add({ id: 'a', role: 'decode', url: 'http://a:1' })
  registry.setHealth('a', true)
  registry.subscribe(({ kind }: RegistryEvent) => heard.push(kind))
  return {
    registry,
    heard,
    state: () => registry.views(0).map(({ state, leaving }) => (leaving ? 'leaving' : state)),
  }
}

describe('a worker held out of rotation', () => {
  it('returns when its last holder releases it, in any order', () => {
    for (const [first, second] of [
      ['admin', 'discovery'],
      ['discovery', 'admin'],
    ] as const) {
      const { registry, heard, state } = start()
      registry.drain('a', 'admin')
      registry.drain('a', 'discovery')
      registry.undrain('a', first)
      expect(state()).toEqual(['draining'])
      registry.undrain('a', second)
      expect(state()).toEqual(['ready'])
      expect(heard).toEqual(['drained', 'undrained'])
    }
  })
})

describe('a retiring worker', () => {
  it('is removed at once if it has no request', () => {
    const { registry, heard, state } = start()
    registry.retire('a')
    expect(state()).toEqual([])
    expect(heard).toEqual(['drained', 'removed', 'forgotten'])
    registry.retire('missing')
  })

  it('is removed with its last request, and gets no other', () => {
    const { registry, heard, state } = start()
    const requests = [registry.dispatch('decode', 0, 1, 0)!, registry.dispatch('decode', 0, 1, 0)!]
    registry.retire('a')
    expect(registry.dispatch('decode', 0, 1, 0)).toBeUndefined()
    requests[0]!.succeeded(1)
    expect([state(), heard]).toEqual([['draining'], ['drained']])
    requests[1]!.failed(2)
    expect([state(), heard]).toEqual([[], ['drained', 'removed', 'forgotten']])
  })

  it('stays if it is called back in time, and its requests end normally', () => {
    const { registry, state } = start()
    const request = registry.dispatch('decode', 0, 1, 0)!
    registry.retire('a')
    registry.undrain('a', 'discovery')
    request.succeeded(1)
    expect(state()).toEqual(['ready'])
    expect(registry.candidates('decode', 0)).toEqual([{ worker: 0, id: 'a', inflight: 0, tokens: 0 }])
  })
})
