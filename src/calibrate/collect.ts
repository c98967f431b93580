/**
 * Sends every request that is not in the journal, several at a time, and journals the results. The first is
 * sent alone, so that a server that cannot capture gets one request and not all. While the server is
 * unreachable, requests are retried with increasing delays; then the run stops.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { EldrError } from '../errors.ts'
import { type Outcome, type PromptLineRequest, sendPrompt, type SendSettings } from './send-prompt.ts'
import type { Journal } from './journal.ts'
import type { Prompts } from './prompts.ts'

export interface CollectSettings extends SendSettings {
  readonly concurrency: number
  /** Retries per request. */
  readonly retries: number
  readonly stop: AbortSignal
  readonly onProgress?: (now: CollectProgress) => void
  readonly onSkip?: (line: number, why: string) => void
}

export interface CollectProgress {
  /** Prompts in the journal, and how many of them were there at the start. */
  readonly done: number
  readonly resumed: number
  readonly total: number
  readonly skipped: number
  /** Requests that wait for an unreachable or busy server. */
  readonly waiting: number
}

const FIRST_PAUSE_MS = 500
const MAX_PAUSE_MS = 15_000

/** `failures`: number of failures before this one. */
export const retryPauseMs = (failures: number): number =>
  Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** failures)

export async function collect(prompts: Prompts, journal: Journal, settings: CollectSettings): Promise<void> {
  const total = prompts.lines.length
  const missing = prompts.lines.map((_, request) => request).filter(request => !journal.has(request))
  const resumed = total - missing.length
  let [next, skipped, waiting] = [0, 0, 0]
  // An error in one lane ends all of them.
  const over = new AbortController()
  const stop = AbortSignal.any([settings.stop, over.signal])
  const progress = () => settings.onProgress?.({ done: journal.size, resumed, total, skipped, waiting })

  async function one(request: number): Promise<void> {
    const prompt = { request, line: prompts.lines[request]!, prompt: await prompts.read(request) }
    const outcome = await sendWithRetries(prompt)
    if (outcome.kind === 'captured') await journal.add(request, outcome.captured)
    else {
      await journal.add(request, outcome.skip)
      skipped++
      settings.onSkip?.(prompt.line, outcome.why)
    }
    progress()
  }

  async function sendWithRetries(prompt: PromptLineRequest): Promise<Exclude<Outcome, { kind: 'retry' }>> {
    for (let failures = 0; ; failures++) {
      const outcome = await sendPrompt(settings, prompt, stop)
      if (outcome.kind !== 'retry') return outcome
      if (failures === settings.retries) throw unavailable(prompt.line, outcome, failures + 1, journal, total)
      waiting++
      progress()
      try {
        await pause(outcome.afterMs ?? retryPauseMs(failures), undefined, { signal: stop })
      } finally {
        waiting--
      }
    }
  }

  async function lane(): Promise<void> {
    while (next < missing.length && !stop.aborted) await one(missing[next++]!)
  }

  progress()
  let failure: unknown
  const run = (work: Promise<void>) =>
    work.catch((error: unknown) => {
      // Report the first error; it ended the other lanes.
      failure ??= error
      over.abort()
    })
  if (next < missing.length) await run(one(missing[next++]!))
  if (failure === undefined)
    await Promise.all(Array.from({ length: settings.concurrency }, () => run(lane())))
  if (settings.stop.aborted) throw settings.stop.reason
  if (failure !== undefined) throw failure
}

function unavailable(
  line: number,
  { why, status }: { readonly why: string; readonly status?: number },
  tries: number,
  { size, path, shape }: Journal,
  total: number,
): EldrError {
  const what =
    status === undefined ? 'no response from the server' : 'a server that accepts no requests at the moment'
  // A journal without captured experts is deleted.
  const kept =
    shape === undefined ? 'Nothing has been captured yet' : `${size} of ${total} prompts are in ${path}`
  const resumes = shape === undefined ? '' : ' to resume'
  return new EldrError('ELDR_CALIBRATION_STOPPED', {
    found: `${what} (line ${line} sent ${tries === 1 ? 'once' : `${tries} times`}: ${why})`,
    todo: `${kept}. When the server is available, run the same command again${resumes}.`,
  })
}
