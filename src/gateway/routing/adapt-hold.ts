/** A hold of live recalibration, which replicas share: no refit for a while after a swap was taken back. */
export interface AdaptHold {
  readonly how: 'undone' | 'rolled_back'
  /** Unix time. */
  readonly untilMs: number
  /** Hash of the swap. */
  readonly sha256: string
}

/** Undefined if the text is not a hold. */
export function holdIn(text: string): AdaptHold | undefined {
  try {
    const { how, untilMs, sha256 } = JSON.parse(text) as Record<string, unknown>
    const isOne =
      (how === 'undone' || how === 'rolled_back') &&
      Number.isSafeInteger(untilMs) &&
      typeof sha256 === 'string' &&
      /^[\da-f]{64}$/.test(sha256)
    return isOne ? { how, untilMs: untilMs as number, sha256 } : undefined
  } catch {
    return undefined
  }
}
