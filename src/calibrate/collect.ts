/**
 * Asks for every request that the journal does not have, so many at a time, and journals what comes. The first is asked alone: a server that
 * cannot capture hears of one request, not of all. A server that is away is asked again, with growing pauses, and then the run stops.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { EldrError } from '../errors.ts'
import { ask, type AskSettings, type Outcome, type Question } from './ask.ts'
import type { Journal } from './journal.ts'
import type { Prompts } from './prompts.ts'

export interface CollectSettings extends AskSettings {
  readonly concurrency: number
  /** Of one request, after its first failure. */
  readonly retries: number
  readonly stop: AbortSignal
  readonly onProgress?: (now: CollectProgress) => void
  readonly onSkip?: (line: number, why: string) => void
}

export interface CollectProgress {
  /** Of all prompts, those that the journal has; of them, those that it had at the start. */
  readonly done: number
  readonly resumed: number
  readonly total: number
  readonly skipped: number
  /** Requests that wait for a server that is away. */
  readonly waiting: number
}

const FIRST_PAUSE_MS = 500
const LONGEST_PAUSE_MS = 15_000

/** After so many failures before this one. */
export const retryPauseMs = (failures: number): number =>
  Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** failures)

export async function collect(prompts: Prompts, journal: Journal, settings: CollectSettings): Promise<void> {
  const total = prompts.lines.length
  const missing = prompts.lines.map((_, request) => request).filter(request => !journal.has(request))
  const resumed = total - missing.length
  let [next, skipped, waiting] = [0, 0, 0]
  // Whatever ends one ends all of them.
  const over = new AbortController()
  const stop = AbortSignal.any([settings.stop, over.signal])
  const progress = () => settings.onProgress?.({ done: journal.size, resumed, total, skipped, waiting })

  async function one(request: number): Promise<void> {
    const question = { request, line: prompts.lines[request]!, prompt: await prompts.read(request) }
    const outcome = await asked(question)
    if (outcome.kind === 'captured') await journal.add(request, outcome.captured)
    else {
      await journal.add(request, outcome.skip)
      skipped++
      settings.onSkip?.(question.line, outcome.why)
    }
    progress()
  }

  async function asked(question: Question): Promise<Exclude<Outcome, { kind: 'again' }>> {
    for (let failures = 0; ; failures++) {
      const outcome = await ask(settings, question, stop)
      if (outcome.kind !== 'again') return outcome
      if (failures === settings.retries) throw gone(question.line, outcome, failures + 1, journal, total)
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
      // The first is the one to tell; the others were ended by it.
      failure ??= error
      over.abort()
    })
  if (next < missing.length) await run(one(missing[next++]!))
  if (failure === undefined)
    await Promise.all(Array.from({ length: settings.concurrency }, () => run(lane())))
  if (settings.stop.aborted) throw settings.stop.reason
  if (failure !== undefined) throw failure
}

function gone(
  line: number,
  { why, status }: { readonly why: string; readonly status?: number },
  times: number,
  { size, path, shape }: Journal,
  total: number,
): EldrError {
  const what =
    status === undefined ? 'no answer from the server' : 'a server that answers, but takes no requests now'
  // A journal without experts is not kept.
  const kept = shape === undefined ? 'Nothing was captured yet' : `${size} of ${total} prompts are in ${path}`
  const goesOn = shape === undefined ? '' : ': it goes on from there'
  return new EldrError('ELDR_CALIBRATION_STOPPED', {
    found: `${what} (line ${line} asked ${times === 1 ? 'once' : `${times} times`}: ${why})`,
    todo: `${kept}. When the server is back, run the same command again${goesOn}.`,
  })
}
