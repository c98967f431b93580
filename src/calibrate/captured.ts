/** What is known of one request: experts of its prompt and of the tokens that were generated. */
export interface ModelShape {
  readonly layers: number
  readonly experts: number
  readonly topK: number
  /** Tokens; 0 when there are no recent counts. */
  readonly halfLife: number
}

export interface Captured extends ModelShape {
  /** Of the prompt, and those whose experts are known. */
  readonly tokens: number
  readonly covered: number
  /** [layers][experts] */
  readonly counts: Uint16Array
  /** [layers][experts] in 256ths; absent without a half-life. */
  readonly recent?: Uint16Array
  readonly steps: number
  /** [steps][layers][topK] */
  readonly ids: Uint8Array | Uint16Array
}

/** Why a request has no row in the trace. The place is what a journal keeps: never change it. */
export const SKIPS = ['too_long', 'not_covered', 'refused', 'unusable'] as const
export type Skip = (typeof SKIPS)[number]

export const SKIP_WORDS: Readonly<Record<Skip, string>> = {
  too_long: 'too long for the model',
  not_covered: 'experts of too few prompt tokens known',
  refused: 'refused by the server',
  unusable: 'not usable',
}

/** Bytes of one expert id, in journals and traces. */
export const idBytes = (experts: number): 1 | 2 => (experts <= 256 ? 1 : 2)

export const isSameShape = (a: ModelShape, b: ModelShape): boolean =>
  a.layers === b.layers && a.experts === b.experts && a.topK === b.topK && a.halfLife === b.halfLife

export function shapeWords({ layers, experts, topK, halfLife }: ModelShape): string {
  return `${layers} layers, ${experts} experts, top ${topK}, ${halfLife === 0 ? 'no recent counts' : `recent counts of half-life ${halfLife}`}`
}
