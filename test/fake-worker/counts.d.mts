import type { CountsShape } from './types.ts'

export type PromptShape = Pick<CountsShape, 'layers' | 'experts' | 'topK'> & { readonly tokens: number }

/** The `eldr` object of a prompt, by variant and number of prompt tokens, as JSON. */
export function countsWriter(shape: CountsShape): (variant: number, tokens: number) => string

/** Counts whose every layer sums to topK × tokens, none above tokens. [layers × experts] */
export function makeCounts(shape: PromptShape, seed: number): Uint16Array

/** The `eldr` object of a hand-off. counts: [layers × experts]. */
export function eldrObject(shape: PromptShape, counts: Uint16Array): Record<string, unknown>
