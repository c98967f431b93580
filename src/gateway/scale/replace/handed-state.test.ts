import { describe, expect, it } from 'vitest'
import { fileSchema } from '../../config/schema/schema.ts'
import type { Settings } from '../../config/settings.ts'
import { settle } from '../../config/settle.ts'
import type { SavedState, SavedWorker } from '../processes/saved-state.ts'
import { sameAddress, stateFor } from './handed-state.ts'
import { configuredBy, type Handed } from './messages.ts'

const url = (n: number) => `http://10.0.0.${n}:8000`
function settingsOf(decode: readonly number[], more: Record<string, unknown> = {}): Settings {
  const workers = { prefill: [url(1)], decode: decode.map(n => ({ id: `d${n}`, url: url(n) })) }
  return settle(fileSchema.parse({ server: { port: 0 }, workers, ...more }))
}
function handedBy(settings: Settings, saved: SavedState = {}): Handed {
  const workers = configuredBy(settings).workers.map((spec, n): SavedWorker => ({
    spec,
    index: n,
    drained: false,
    healthy: true,
  }))
  return {
    configured: configuredBy(settings),
    port: 4000,
    saved: { workers, ...saved },
    relays: [],
    lastRelay: 1,
  }
}
const ids = ({ workers = [] }: SavedState) => workers.map(({ spec }) => spec.id)

describe('the state of a successor', () => {
  it('has all admin changes if the configuration is the same', () => {
    const settings = settingsOf([2, 3])
    const handed = handedBy(settings, {
      routing: { policy: 'jsq', tau: 0.3 },
      artifact: { path: '/tmp/copy', shownAs: 'the artifact that was sent' },
      clusters: 5,
      logLevel: { level: 'debug' },
    })
    expect(stateFor(settings, handed)).toMatchObject(handed.saved)
  })

  it('has the new value of each setting that the configuration changes, and no other', () => {
    const handed = handedBy(settingsOf([2, 3]), {
      routing: { policy: 'jsq', tau: 0.3, prefillPolicy: 'round_robin' },
      logLevel: { level: 'debug' },
    })
    const now = settingsOf([2, 3], { routing: { policy: 'random' }, observe: { logLevel: 'warn' } })
    const { routing, logLevel } = stateFor(now, handed)
    expect(routing).toEqual({ policy: undefined, tau: 0.3, prefillPolicy: 'round_robin' })
    expect(logLevel).toBeUndefined()
  })

  it('reads the configured artifact again, and keeps one that an operator loaded', () => {
    const artifact = '/etc/eldr/task.artifact.safetensors'
    const settings = settingsOf([2], { routing: { artifact } })
    const own = { path: '/tmp/copy', shownAs: artifact }
    expect(stateFor(settings, handedBy(settings, { artifact: own, clusters: 4 }))).toMatchObject({
      artifact: undefined,
      clusters: 4,
    })
    const loaded = { path: '/tmp/copy', shownAs: '/other' }
    expect(stateFor(settings, handedBy(settings, { artifact: loaded })).artifact).toEqual(loaded)
    const next = stateFor(settingsOf([2]), handedBy(settings, { artifact: loaded, clusters: 4 }))
    expect([next.artifact, next.clusters]).toEqual([undefined, undefined])
    // Other workers may need another number of clusters.
    const more = settingsOf([2, 3], { routing: { artifact } })
    expect(stateFor(more, handedBy(settings, { artifact: own, clusters: 4 })).clusters).toBeUndefined()
  })

  it('has the workers of a changed configuration, without those that an operator removed', () => {
    const before = settingsOf([2, 3, 4])
    const all = handedBy(before)
    const admin: SavedWorker = {
      spec: { id: 'late', url: url(9), role: 'decode', source: 'admin' },
      index: 7,
      drained: false,
      healthy: true,
    }
    const workers = [...all.saved.workers!.filter(({ spec }) => spec.id !== 'd3'), admin].map(worker =>
      worker.spec.id === 'd4' ? { ...worker, drained: true } : worker,
    )
    const next = stateFor(settingsOf([3, 4, 5]), { ...all, saved: { workers } })
    expect(ids(next)).toEqual(['10.0.0.1:8000', 'd4', 'd5', 'late'])
    expect(next.workers!.map(({ drained, healthy }) => [drained, healthy])).toEqual([
      [false, true],
      [true, true],
      [false, false],
      [false, true],
    ])
    // An operator who removed it means the worker at that address.
    const moved = settingsOf([], { workers: { prefill: [url(1)], decode: [{ id: 'd3', url: url(33) }] } })
    expect(ids(stateFor(moved, { ...all, saved: { workers } }))).toEqual(['10.0.0.1:8000', 'd3', 'late'])
  })
})

it('a successor takes the socket if it is configured for the same port, or for the one that 0 gave', () => {
  const handed = handedBy(settingsOf([2]))
  expect(sameAddress(settingsOf([2]), handed)).toBe(true)
  expect(sameAddress(settingsOf([2], { server: { port: 4000 } }), handed)).toBe(true)
  expect(sameAddress(settingsOf([2], { server: { port: 4001 } }), handed)).toBe(false)
  expect(sameAddress(settingsOf([2], { server: { port: 0, host: '0.0.0.0' } }), handed)).toBe(false)
})
