/** The captured experts of one request: those of its prompt and those of its generated tokens. */
export interface ModelShape {
  readonly layers: number
  readonly experts: number
  readonly topK: number
  /** In tokens; 0 without recent counts. */
  readonly halfLife: number
}

export interface Captured extends ModelShape {
  /** Prompt tokens, and how many of them have known experts. */
  readonly tokens: number
  readonly covered: number
  /** [layers][experts] */
  readonly counts: Uint16Array
  /** [layers][experts] in 256ths; undefined without a half-life. */
  readonly recent?: Uint16Array
  readonly steps: number
  /** [steps][layers][topK] */
  readonly ids: Uint8Array | Uint16Array
}

/** Why a request has no row in the trace. Journals store the index: never change the order. */
export const SKIPS = ['too_long', 'not_covered', 'refused', 'unusable'] as const
export type Skip = (typeof SKIPS)[number]

export const SKIP_WORDS: Readonly<Record<Skip, string>> = {
  too_long: 'too long for the model',
  not_covered: 'experts known for too few prompt tokens',
  refused: 'rejected by the server',
  unusable: 'unusable',
}

/** Bytes of one expert id, in journals and traces. */
export const idBytes = (experts: number): 1 | 2 => (experts <= 256 ? 1 : 2)

export const isSameShape = (a: ModelShape, b: ModelShape): boolean =>
  a.layers === b.layers && a.experts === b.experts && a.topK === b.topK && a.halfLife === b.halfLife

export function shapeWords({ layers, experts, topK, halfLife }: ModelShape): string {
  return `${layers} layers, ${experts} experts, top ${topK}, ${halfLife === 0 ? 'no recent counts' : `recent counts with half-life ${halfLife}`}`
}
