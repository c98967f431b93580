/** Totals of an engine since its start. */
import type { EngineStats, GenerationEnd } from '../types.ts'
import type { PlannedWork } from './scheduler.ts'

export class Totals {
  steps = 0
  decodeSteps = 0
  promptTokens = 0
  generationTokens = 0
  decodeTokens = 0
  activeTokens = 0
  readonly #finished = { stop: 0, length: 0, aborted: 0, failed: 0 }

  /** `active`: distinct experts of the batch, mean over the cost model's layers. */
  step(batch: number, active: number): void {
    this.steps++
    if (batch === 0) return
    this.decodeSteps++
    this.decodeTokens += batch
    this.activeTokens += batch * active
  }

  /** Counts the prompt tokens among those computed, and a new token if the last one was among them. */
  work({ sequence: { promptLength, length }, from, to }: PlannedWork): void {
    this.promptTokens += Math.max(0, Math.min(to, promptLength) - from)
    if (to === length) this.generationTokens++
  }

  end(end: GenerationEnd): void {
    this.#finished[end.kind === 'finished' ? end.reason : end.kind]++
  }

  stats(): Pick<
    EngineStats,
    | 'steps'
    | 'decodeSteps'
    | 'promptTokens'
    | 'generationTokens'
    | 'decodeTokens'
    | 'activeTokens'
    | 'finished'
  > {
    const { steps, decodeSteps, promptTokens, generationTokens, decodeTokens, activeTokens } = this
    return {
      steps,
      decodeSteps,
      promptTokens,
      generationTokens,
      decodeTokens,
      activeTokens,
      finished: { ...this.#finished },
    }
  }
}
