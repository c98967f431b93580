/**
 * Detects that a worker restarted although it responds as before: its KV blocks, its prefix cache and all
 * earlier hand-offs are lost. A prefill worker shows it by another engine id in its hand-offs, a decode
 * worker by counters that start again.
 */
export class RestartWatch {
  readonly #restarted: (workerId: string) => void
  readonly #engines = new Map<string, { now: string; before?: string }>()
  readonly #counters = new Map<string, Map<string, number>>()

  constructor(restarted: (workerId: string) => void) {
    this.#restarted = restarted
  }

  /** `remote_engine_id` of a hand-off. Configured ids never change, so they show nothing. */
  sawEngineId(workerId: string, engineId: string): void {
    // Data-parallel engines of one server differ only in this suffix.
    const engine = engineId.replace(/_dp\d+$/, '')
    const seen = this.#engines.get(workerId)
    // A hand-off that was in flight when the worker stopped may be read after the first one from its restart.
    if (engine === seen?.now || engine === seen?.before) return
    this.#engines.set(workerId, { now: engine, before: seen?.now })
    if (seen !== undefined) this.#restarted(workerId)
  }

  /**
   * Counters that only rise, and `process_start_time_seconds` if the worker has it. Invalid counts are
   * ignored.
   */
  sawCounters(workerId: string, counters: ReadonlyMap<string, number>): void {
    const last = this.#counters.get(workerId) ?? new Map<string, number>()
    let restarted = false
    for (const [name, value] of counters) {
      if (!(value >= 0 && value < Infinity)) continue
      const before = last.get(name) ?? value
      // Some clients compute the start time from the clock at each reading, so it jitters.
      restarted ||= name === START_TIME ? Math.abs(value - before) > START_TREMBLE_S : value < before
      last.set(name, value)
    }
    this.#counters.set(workerId, last)
    if (restarted) this.#restarted(workerId)
  }

  forget(workerId: string): void {
    this.#engines.delete(workerId)
    this.#counters.delete(workerId)
  }
}

/** vLLM's metrics that show a restart; names for `readSamples`. */
const START_TIME = 'process_start_time_seconds'
export const RESTART_SAMPLES: ReadonlySet<string> = new Set([
  START_TIME,
  'vllm:generation_tokens_total',
  'vllm:prompt_tokens_total',
])
const START_TREMBLE_S = 1
