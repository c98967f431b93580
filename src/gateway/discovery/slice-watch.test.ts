import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { LookupFailure } from './source.ts'
import { type KubeApi, KubeFailure } from './kube-client.ts'
import { SliceWatch } from './slice-watch.ts'
import type { Slice } from './slices.ts'

interface HistoryEntry {
  readonly type: 'put' | 'delete' | 'foreign' | 'bookmark'
  readonly name: string
}
/** How one response of the API fails. */
type Trouble =
  | 'none'
  | 'cut'
  | 'gone'
  | 'gone_event'
  | 'error_event'
  | 'rubbish'
  | 'reset'
  | 'status_500'
  | 'twice'

const object = (name: string, version: number) => ({
  kind: 'EndpointSlice',
  metadata: { name, namespace: 'n', resourceVersion: String(version) },
  endpoints: [{ addresses: [`10.0.0.${version % 250}`] }],
})

/**
 * An API with a fixed history. It delivers the history in pieces and with faults, and completely at the end.
 */
function scriptedApi(
  history: readonly HistoryEntry[],
  troubles: readonly Trouble[],
  cut: number,
  done: () => void,
): KubeApi {
  let calls = 0
  let listed = 0
  /** Watches from earlier versions are refused. */
  let oldest = 0
  const stateAt = (version: number) => {
    const state = new Map<string, object>()
    for (const [at, { type, name }] of history.slice(0, version).entries()) {
      if (type === 'put') state.set(name, object(name, at + 1))
      else if (type === 'delete') state.delete(name)
    }
    return state
  }
  const line = (version: number) => {
    const { type, name } = history[version - 1]!
    if (type === 'bookmark')
      return { type: 'BOOKMARK', object: { metadata: { resourceVersion: String(version) } } }
    if (type === 'foreign')
      return { type: 'ADDED', object: { kind: 'Pod', metadata: { name, resourceVersion: String(version) } } }
    if (type === 'delete') return { type: 'DELETED', object: object(name, version) }
    return { type: 'MODIFIED', object: object(name, version) }
  }
  async function* pieces(text: string, trouble: Trouble): AsyncGenerator<Buffer> {
    const bytes = Buffer.from(trouble === 'cut' ? text.slice(0, Math.floor(text.length / 2)) : text)
    for (let at = 0; at < bytes.length; at += cut) yield bytes.subarray(at, at + cut)
    if (trouble === 'reset') throw new Error('ECONNRESET')
  }
  return {
    async get(path, _, signal) {
      const query = new URL(path, 'http://api').searchParams
      const trouble = troubles[calls++] ?? 'none'
      if (trouble === 'status_500') throw new KubeFailure(500, path)
      const from = Number(query.get('resourceVersion') ?? history.length)
      if (trouble === 'gone' || trouble === 'gone_event')
        oldest = Math.max(oldest, Math.min(history.length, from + 1))
      if (trouble === 'gone' || (from < oldest && trouble !== 'gone_event')) throw new KubeFailure(410, path)
      if (query.get('watch') === null) {
        // Each list contains a little more of the history than the one before.
        listed = Math.min(history.length, Math.max(listed + 2, oldest))
        const list = {
          kind: 'EndpointSliceList',
          metadata: { resourceVersion: String(listed) },
          items: [...stateAt(listed).values()],
        }
        return pieces(
          trouble === 'rubbish' ? '{"kind":' : JSON.stringify(list),
          trouble === 'cut' ? 'none' : trouble,
        )
      }
      const to = calls > troubles.length ? history.length : Math.min(history.length, from + 3)
      const lines = Array.from({ length: to - from }, (_, n) => JSON.stringify(line(from + 1 + n)))
      if (trouble === 'twice') lines.push(...lines)
      if (trouble === 'gone_event') lines.push('{"type":"ERROR","object":{"kind":"Status","code":410}}')
      if (trouble === 'error_event') lines.push('{"type":"ERROR","object":{"kind":"Status","code":500}}')
      if (trouble === 'rubbish') lines.push('{"type":"ADDED","obj')
      const text = lines.map(each => `${each}\n`).join('')
      if (calls <= troubles.length) return pieces(text, trouble)
      return (async function* () {
        yield* pieces(text, 'none')
        done()
        await new Promise<void>(resolve => signal.addEventListener('abort', () => resolve(), { once: true }))
      })()
    },
  }
}

const historyEntry = fc.record({
  type: fc.constantFrom(
    'put' as const,
    'put' as const,
    'delete' as const,
    'foreign' as const,
    'bookmark' as const,
  ),
  name: fc.constantFrom('a', 'b', 'c'),
})
const trouble = fc.constantFrom<Trouble>(
  'none',
  'cut',
  'gone',
  'gone_event',
  'error_event',
  'rubbish',
  'reset',
  'status_500',
  'twice',
)

describe('a watch of EndpointSlices', () => {
  it('ends in the state of the history, whatever faults occur', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(historyEntry, { maxLength: 20 }),
        fc.array(trouble, { maxLength: 8 }),
        fc.integer({ min: 1, max: 200 }),
        async (history, troubles, cut) => {
          let seen: ReadonlyMap<string, Slice> = new Map()
          let caughtUp = () => {}
          const end = new Promise<void>(resolve => (caughtUp = resolve))
          const failures: LookupFailure[] = []
          const watch = new SliceWatch({
            client: scriptedApi(history, troubles, cut, () => caughtUp()),
            labels: ['a=b'],
            retryMs: 1,
            silentMs: 1_000,
            changed: slices => (seen = slices),
            failed: error => failures.push(error),
          })
          await end
          watch.stop()
          const last = new Map<string, string>()
          for (const [at, { type, name }] of history.entries()) {
            if (type === 'put') last.set(name, String(at + 1))
            else if (type === 'delete') last.delete(name)
          }
          expect(Object.fromEntries([...seen.values()].map(({ key, version }) => [key, version]))).toEqual(
            Object.fromEntries([...last].map(([name, version]) => [`n/${name}`, version])),
          )
          expect(
            failures
              .map(({ problem }) => problem.reason)
              .filter(reason => !['broken', 'failed', 'unreachable'].includes(reason)),
          ).toEqual([])
        },
      ),
      { numRuns: 150 },
    )
  })

  it.each([
    ['pages', () => [], 200, '200 pages'],
    [
      'slices',
      (page: number) => Array.from({ length: 250 }, (_, n) => object(`${page}-${n}`, 1)),
      41,
      '10000 EndpointSlices',
    ],
    ['bytes', (page: number) => [{ ...object(String(page), 1), padding: 'x'.repeat(30 << 20) }], 3, '64 MiB'],
  ])('stops at the limit of %s in a list, and waits before the next', async (_, itemsOf, calls, words) => {
    let asked = 0
    const list = (items: readonly object[]) =>
      JSON.stringify({
        kind: 'EndpointSliceList',
        metadata: { resourceVersion: '1', continue: 'more' },
        items,
      })
    const get = async () =>
      (async function* () {
        yield Buffer.from(list(itemsOf(++asked)))
      })()
    const [error, told] = await new Promise<[LookupFailure, number]>(resolve => {
      let told = 0
      const watch = new SliceWatch({
        client: { get },
        labels: ['a=b'],
        retryMs: 3_600_000,
        silentMs: 1_000,
        changed: () => void told++,
        failed: failure => (watch.stop(), resolve([failure, told])),
      })
    })
    expect(error.problem).toEqual({
      reason: 'broken',
      text: `the Kubernetes API has more than ${words} for one selector: choose a more specific selector`,
    })
    expect([asked, told]).toEqual([calls, 0])
  })
})
