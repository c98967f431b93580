/** KV of a prompt that another worker has computed: fetched, checked, put into the sequence's blocks, in no less than the modelled time. */
import type { BackEnd, RemoteKv } from '../types.ts'
import type { Sequence } from './sequence.ts'
import type { StepClock } from './step-clock.ts'

/** Whether the KV is there; false when the sequence ended meanwhile. Rejects when the KV did not come, or is not that of the prompt. */
export async function fetchKv(
  sequence: Sequence,
  remote: RemoteKv,
  backEnd: BackEnd,
  clock: StepClock,
): Promise<boolean> {
  const beganMs = clock.now()
  const { signal } = sequence.stopFetch
  const payload = await remote.fetch(signal)
  // Its blocks may be another's by now.
  if (signal.aborted) return false
  if (payload.tokens !== remote.tokens)
    throw new Error(`KV of ${payload.tokens} tokens came where ${remote.tokens} were promised`)
  backEnd.importKv(sequence.inner!, payload, sequence.ids, sequence.computed, remote.tokens, sequence.blocks)
  const leftMs = backEnd.transferMs(remote.tokens) - (clock.now() - beganMs)
  if (leftMs <= 0) return true
  return new Promise(resolve => {
    const cancel = clock.after(leftMs, () => resolve(true))
    signal.addEventListener('abort', () => {
      cancel()
      resolve(false)
    })
  })
}
