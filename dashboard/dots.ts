/** Live requests in signature space: each appears, stays and fades. */
import type { LiveDecision } from '../src/gateway/observe/insight/wire.ts'

export interface Dot {
  readonly x: number
  readonly y: number
  readonly worker: string
  readonly bornMs: number
}

export const LIFE_MS = 30_000
const KEPT = 400

let dots: Dot[] = []

export function addDots(sample: readonly LiveDecision[]): void {
  const bornMs = performance.now()
  for (const { at, worker } of sample) if (at !== undefined) dots.push({ x: at[0], y: at[1], worker, bornMs })
  dots = dots.filter(dot => bornMs - dot.bornMs < LIFE_MS).slice(-KEPT)
}

export function clearDots(): void {
  dots = []
}

export function liveDots(nowMs: number): readonly Dot[] {
  return dots.filter(({ bornMs }) => nowMs - bornMs < LIFE_MS)
}
