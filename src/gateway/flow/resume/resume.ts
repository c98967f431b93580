/**
 * A broken stream goes on elsewhere: another worker gets the prompt and the generated tokens as its prompt,
 * and its stream is joined to the client's. Only where the client cannot tell; otherwise it gets the error.
 */
import { type ClientRequest, readRequest } from '../../http/client-request.ts'
import { Refusal } from '../../http/refusal.ts'
import type { Resumption } from '../../engines/engine.ts'
import type { Outcome } from '../../observe/request-observer.ts'
import { exclude } from '../attempt.ts'
import type { FlowContext } from '../context.ts'
import type { Generation } from '../generate.ts'
import { stoppedOutcome } from '../generation-end.ts'
import { endOfStream } from './end-of-stream.ts'
import { type NotResumed, Progress } from './progress.ts'
import { hasOtherThanText, type ResumeTraits, resumeTraits } from './resumable.ts'
import { SeamSink } from './seam-sink.ts'
import { type BrokenLeg, StreamTracker } from './tracker.ts'

/** Runs a generation on workers that are not excluded. */
type Run = (generation: Generation, excluded: Set<string>) => Promise<Outcome>

/** A JSON character has up to 6 bytes; as much text again may have been held back at the cut. */
const OVERLAP_BYTES_PER_CHARACTER = 12

export async function resuming(ctx: FlowContext, generation: Generation, run: Run): Promise<Outcome> {
  const { resume } = ctx.settings
  const { resumption } = ctx.engine
  const { request, exchange, events } = generation
  if (!resume.enabled || resumption === undefined || !request.stream) return run(generation, new Set())
  const traits = resumeTraits(request)
  const isRepeatable = traits.greedy || traits.seeded || resume.sampled
  const refused = traits.refused ?? (isRepeatable ? undefined : 'sampled')
  if (refused === undefined) return new Resuming(ctx, generation, resumption, traits).run(run)
  const outcome = await run(generation, new Set())
  if (outcome === 'broken' && exchange.stopped === undefined) events.notResumed(refused)
  return outcome
}

class Resuming {
  readonly #ctx: FlowContext
  readonly #generation: Generation
  readonly #resumption: Resumption
  readonly #traits: ResumeTraits
  readonly #progress: Progress
  readonly #sink: SeamSink
  readonly #tracker: StreamTracker
  readonly #excluded = new Set<string>()
  #resumed = 0

  constructor(ctx: FlowContext, generation: Generation, resumption: Resumption, traits: ResumeTraits) {
    const { maxTokens, sampled } = ctx.settings.resume
    this.#ctx = ctx
    this.#generation = generation
    this.#resumption = resumption
    this.#traits = traits
    this.#progress = new Progress(maxTokens, OVERLAP_BYTES_PER_CHARACTER * traits.heldCharacters)
    this.#sink = new SeamSink(generation.sink)
    this.#tracker = new StreamTracker(this.#progress, traits, sampled, resumption.idFields)
  }

  async run(run: Run): Promise<Outcome> {
    const { exchange, events } = this.#generation
    const [sink, tracker] = [this.#sink, this.#tracker]
    let generation: Generation = { ...this.#generation, sink, tracker }
    for (;;) {
      const outcome = await this.#leg(run, generation)
      const { failure } = sink
      if (failure === undefined) return outcome
      const { broken } = tracker
      if (broken === undefined || exchange.stopped !== undefined) {
        sink.tell(failure)
        return outcome
      }
      exclude(this.#excluded, broken.worker, broken.cause)
      const brokeMs = performance.now()
      if (this.#progress.finished && this.#progress.obstacle === undefined) return this.#end(broken)
      const refused = await this.#refused()
      if (refused !== undefined) {
        events.notResumed(refused)
        sink.tell(failure)
        return 'broken'
      }
      this.#resumed++
      sink.onResumed = () => {
        sink.failure = undefined
        events.resumed({ cause: broken.cause, pauseMs: performance.now() - brokeMs })
      }
      generation = { ...generation, ...this.#continuation(), first: this.#generation.request }
    }
  }

  /** A continuation that fails before its first token leaves the failure of the stream as it was. */
  async #leg(run: Run, generation: Generation): Promise<Outcome> {
    const [sink, tracker] = [this.#sink, this.#tracker]
    const { exchange } = this.#generation
    const isFirst = !sink.begun
    const { failure } = sink
    tracker.broken = undefined
    try {
      const outcome = await run(generation, this.#excluded)
      // The client left, or its time was up, before the stream went on.
      if (failure !== undefined && failure === sink.failure && exchange.stopped !== undefined)
        sink.failure = exchange.refusal
      if (!sink.refused) return outcome
      this.#generation.events.notResumed('failed')
    } catch (error) {
      if (isFirst || !(error instanceof Refusal)) throw error
      const { events } = this.#generation
      if (exchange.stopped !== undefined) {
        sink.failure = exchange.refusal
        return stoppedOutcome(exchange, true)
      }
      events.notResumed(tracker.diverged ? 'diverged' : isMissing(error) ? 'no_worker' : 'failed')
    }
    return 'broken'
  }

  async #refused(): Promise<NotResumed | undefined> {
    const { placement, settings } = this.#ctx
    const { obstacle, promptIds, cut } = this.#progress
    if (obstacle !== undefined) return obstacle
    if (!this.#tracker.repeats) return 'sampled'
    if (this.#resumed >= settings.resume.maxPerRequest) return 'limit'
    if (promptIds === undefined) return 'no_ids'
    if (cut > 0 && hasOtherThanText(this.#generation.request)) return 'multimodal'
    try {
      if (!(await placement.any('decode', this.#excluded))) return 'no_worker'
      return (await placement.mayResume(this.#excluded)) ? undefined : 'budget'
    } catch (error) {
      // The owner process is away.
      if (error instanceof Refusal) return 'no_worker'
      throw error
    }
  }

  /** The request that another worker gets: the client's own if it has no text yet. */
  #continuation(): Pick<Generation, 'request' | 'path'> {
    const { request, path } = this.#generation
    const progress = this.#progress
    progress.mark()
    const { wantsIds: keepsIds } = this.#traits
    const { cut } = progress
    if (cut === 0) {
      this.#tracker.seam = { progress, cut, promptIds: undefined, toChat: false, keepsIds }
      return { request, path }
    }
    const promptIds = `${progress.promptIds!.slice(0, -1)},${progress.ids.slice(0, cut).join()}]`
    const body = this.#resumption.continuation(request, promptIds, cut)
    const toChat = request.api === 'chat'
    this.#tracker.seam = { progress, cut, promptIds, toChat, keepsIds }
    return {
      request: readRequest('completions', body, this.#ctx.engine) as ClientRequest,
      path: toChat ? path.replace('chat/completions', 'completions') : path,
    }
  }

  /** Only the end is missing, which the gateway knows. */
  #end({ cause }: BrokenLeg): Outcome {
    const { request, events } = this.#generation
    this.#sink.write(endOfStream(request, this.#progress))
    this.#sink.end()
    events.resumed({ cause, pauseMs: 0 })
    return 'ok'
  }
}

function isMissing({ code }: Refusal): boolean {
  return code === 'ELDR_NO_DECODE_WORKER' || code === 'ELDR_NO_PREFILL_WORKER'
}
