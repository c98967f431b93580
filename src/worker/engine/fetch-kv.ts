/**
 * Fetches the KV of a prompt from another worker, checks it, and imports it into the sequence’s blocks, in no
 * less than the modelled time.
 */
import type { BackEnd, RemoteKv } from '../types.ts'
import type { Sequence } from './sequence.ts'
import type { StepClock } from './step-clock.ts'

/**
 * True if the KV was imported, false if the sequence ended meanwhile. Rejects if the KV did not arrive or
 * belongs to another prompt.
 */
export async function fetchKv(
  sequence: Sequence,
  remote: RemoteKv,
  backEnd: BackEnd,
  clock: StepClock,
): Promise<boolean> {
  const beganMs = clock.now()
  const { signal } = sequence.stopFetch
  const from = Math.min(sequence.computed, remote.tokens)
  const payload = await remote.fetch(signal, from)
  // Its blocks may have been reassigned by now.
  if (signal.aborted) return false
  if (payload.tokens !== remote.tokens)
    throw new Error(`received KV of ${payload.tokens} tokens, expected ${remote.tokens}`)
  const { ids, blocks } = sequence
  backEnd.importKv(sequence.inner!, payload, { ids, from, tokens: remote.tokens, blocks })
  const leftMs = backEnd.transferMs(remote.tokens - from) - (clock.now() - beganMs)
  if (leftMs <= 0) return true
  return new Promise(resolve => {
    const cancel = clock.after(leftMs, () => resolve(true))
    signal.addEventListener('abort', () => {
      cancel()
      resolve(false)
    })
  })
}
