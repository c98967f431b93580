import { describe, expect, it } from 'vitest'
import type { readOffThread as ReadOffThread } from '../../src/gateway/discovery/worker-file-off-thread.ts'
import { LookupFailure } from '../../src/gateway/discovery/source.ts'
import { readWorkerFile } from '../../src/gateway/discovery/worker-file.ts'

// Threads need what is built.
const built = new URL('../../dist/gateway/discovery/worker-file-off-thread.js', import.meta.url)
const { readOffThread } = (await import(built.href)) as { readonly readOffThread: typeof ReadOffThread }
const never = new AbortController().signal
/** A read limit that no machine reaches: the tests that use it are not about the limit. */
const NO_LIMIT_MS = 3_600_000
const yaml = (count: number, last = '') =>
  `decode:\n${Array.from({ length: count }, (_, n) => `  - {url: "http://10.0.0.1:${n + 1}", id: d${n}}\n`).join('')}${last}`
/** Parsing takes quadratic time in the number of keys. */
const slow = Array.from({ length: 60_000 }, (_, n) => `k${n}: 1\n`).join('')

describe('a large file of workers', () => {
  it('is read in a thread with the same result', async () => {
    const file = { path: 'w.yaml', text: yaml(4096), defaults: {} }
    expect(await readOffThread(file, never, NO_LIMIT_MS)).toEqual(readWorkerFile('w.yaml', file.text))
  })

  it('is refused with the same message', async () => {
    const text = yaml(1000, '  - gopher://a\n')
    const error = await readOffThread({ path: 'w.yaml', text, defaults: {} }, never, NO_LIMIT_MS).then(
      () => undefined,
      (reason: { problem: unknown }) => reason,
    )
    expect(() => readWorkerFile('w.yaml', text)).toThrow(LookupFailure)
    expect(error?.problem).toEqual({
      reason: 'broken',
      text: 'w.yaml:1002:5: decode[1000]: expected an http or https URL such as http://10.0.0.7:8000, found the scheme gopher',
    })
  })

  it('that takes very long does not block the gateway, and is abandoned on shutdown', async () => {
    const stop = new AbortController()
    let isDone = false
    const reading = readOffThread(
      { path: 'w.yaml', text: slow, defaults: {} },
      stop.signal,
      NO_LIMIT_MS,
    ).finally(() => (isDone = true))
    for (let turns = 0; turns < 1000; turns++) await new Promise(setImmediate)
    expect(isDone).toBe(false)
    stop.abort()
    expect(await reading).toEqual([])
  })

  it('that takes longer than the limit is refused', async () => {
    await expect(readOffThread({ path: 'w.yaml', text: slow, defaults: {} }, never, 500)).rejects.toThrow(
      'w.yaml takes more than 0.5 s to read',
    )
  })
})
