/** An engine that a test controls: it lists requests, and the test provides their tokens and ends. */
import type {
  EngineSettings,
  EngineStats,
  FinishedGeneration,
  Generation,
  GenerationEnd,
  GenerationEvents,
  Tokenizer,
  WorkerEngine,
} from '../../src/worker/types.ts'

export const EOS = 1_000

/** One token per character, below 1,000. */
const tokenizer: Tokenizer = {
  size: 1_001,
  eosId: EOS,
  endsText: id => id === EOS,
  leastTokens: prompt => (typeof prompt === 'string' ? prompt.length : tokenizer.chat(prompt).length),
  encode: text => Int32Array.from(text, character => character.charCodeAt(0) % 1_000),
  decode: ids => Array.from(ids as number[], id => (id === EOS ? '' : String.fromCharCode(id))).join(''),
  tokenString: id => tokenizer.decode([id]),
  stream: () => ({ push: id => (id === EOS ? '' : String.fromCharCode(id)), end: () => '' }),
  chat: messages => tokenizer.encode(messages.map(({ role, content }) => `<${role}>${content}`).join('')),
}

export class ScriptedRequest {
  readonly request: Generation
  readonly #events: GenerationEvents
  readonly #ended: (end: GenerationEnd) => void
  end: GenerationEnd | undefined
  aborted: 'stop' | 'gone' | undefined
  tokens = 0

  constructor(request: Generation, events: GenerationEvents, ended: (end: GenerationEnd) => void) {
    this.request = request
    this.#events = events
    this.#ended = ended
  }

  /** One token per character. */
  say(text: string): this {
    for (const character of text) this.token(character.charCodeAt(0), character)
    return this
  }

  token(id: number, text: string): this {
    if (this.end !== undefined) return this
    this.tokens++
    this.#events.onToken(id, text)
    return this
  }

  finish(reason: 'stop' | 'length' = 'length', more: Partial<FinishedGeneration> = {}): void {
    const promptTokens = this.request.promptIds.length
    this.close({
      kind: 'finished',
      reason,
      promptTokens,
      cachedTokens: 0,
      completionTokens: this.tokens,
      tail: '',
      ...more,
    })
  }

  fail(status: number, message: string): void {
    this.close({ kind: 'failed', status, message })
  }

  close(end: GenerationEnd): void {
    if (this.end !== undefined) return
    this.end = end
    this.#events.onEnd(end)
    this.#ended(end)
  }
}

export class ScriptedEngine implements WorkerEngine {
  readonly model = { layers: 2, experts: 4, topK: 2 }
  readonly tokenizer = tokenizer
  readonly settings: EngineSettings = {
    blocks: 64,
    blockTokens: 4,
    maxBatchedTokens: 64,
    maxSeqs: 8,
    prefixCaching: true,
    capture: true,
    halfLife: undefined,
  }
  readonly requests: ScriptedRequest[] = []
  resettable = true
  closed = false
  #wakers: (() => void)[] = []

  generate(request: Generation, events: GenerationEvents) {
    const scripted = new ScriptedRequest(request, events, () => this.#wake())
    this.requests.push(scripted)
    this.#wake()
    return {
      abort: (reason: 'stop' | 'gone' = 'gone') => {
        if (scripted.end !== undefined) return
        scripted.aborted = reason
        if (reason === 'stop') scripted.finish('stop')
        else scripted.close({ kind: 'aborted' })
      },
    }
  }

  /** The n-th request, once it has arrived. */
  async request(n: number): Promise<ScriptedRequest> {
    await this.until(() => this.requests.length > n)
    return this.requests[n]!
  }

  async until(holds: () => boolean): Promise<void> {
    while (!holds()) await new Promise<void>(resolve => this.#wakers.push(resolve))
  }

  stats(): EngineStats {
    const running = this.requests.filter(({ end }) => end === undefined).length
    const finished = { stop: 0, length: 0, aborted: 0, failed: 0 }
    for (const { end } of this.requests)
      if (end !== undefined) finished[end.kind === 'finished' ? end.reason : end.kind]++
    return {
      running,
      waiting: 2,
      fetching: 1,
      blocks: 64,
      blocksFree: 48,
      blocksCached: 3,
      blocksKept: 0,
      leases: 0,
      kvUsage: 0.25,
      signatureRows: 3,
      signatureBytes: 100,
      prefixQueries: 70,
      prefixHits: 30,
      preemptions: 4,
      promptTokens: 40,
      generationTokens: 50,
      finished,
      steps: 9,
      decodeSteps: 8,
      decodeTokens: 30,
      activeTokens: 70,
      batch: 5,
      activePerLayer: Uint16Array.of(3, 2),
      active: 2.5,
      timing: { steps: 0, modelledMs: 0, takenMs: 0, errorP50: 0, errorP99: 0, computeMs: 0 },
    }
  }

  union() {
    return { layers: 2, experts: 4, active: Uint8Array.of(1, 1, 0, 1, 0, 0, 1, 1) }
  }

  resetPrefixCache(): boolean {
    return this.resettable
  }

  async close(): Promise<void> {
    this.closed = true
    for (const request of this.requests) request.close({ kind: 'aborted' })
  }

  #wake(): void {
    for (const wake of this.#wakers.splice(0)) wake()
  }
}
