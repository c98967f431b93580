/** Artifacts of the tiny model's shape, for the adversary to load. Their experts do not matter. */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { writeArtifact } from '../../../src/fit/artifact-write.ts'
import { writeSafetensors } from '../../../src/trace/safetensors-write.ts'
import { fitFile } from '../../data.ts'
import { makeCounts } from '../../fake-worker/counts.mjs'
import { DECODES } from './machines.ts'

export interface MadeArtifact {
  readonly path: string
  readonly sha256: string
}

/** Of models/tiny6. */
const SHAPE = { layers: 6, experts: 64, topK: 8 }
const [REQUESTS, TOKENS] = [48, 32]

export async function makeArtifact(folder: string, seed: number): Promise<MadeArtifact> {
  const { layers, experts, topK } = SHAPE
  const counts = new Uint16Array(REQUESTS * layers * experts)
  for (let request = 0; request < REQUESTS; request++)
    counts.set(
      makeCounts({ ...SHAPE, tokens: TOKENS }, seed * 1_000 + (request % 8)),
      request * layers * experts,
    )
  const trace = join(folder, `trace-${seed}.safetensors`)
  await writeSafetensors(trace, {
    metadata: {
      format: 'eldr.trace.v1',
      model: 'tiny6',
      layers: String(layers),
      experts: String(experts),
      top_k: String(topK),
    },
    tensors: {
      prefill_counts: { dtype: 'U16', shape: [REQUESTS, layers, experts], data: counts },
      prompt_tokens: { dtype: 'U16', shape: [REQUESTS], data: new Uint16Array(REQUESTS).fill(TOKENS) },
    },
  })
  const { artifact } = await fitFile(trace, { workers: DECODES.length, layers: 'all', transform: 'count' })
  const path = join(folder, `artifact-${seed}.safetensors`)
  await writeArtifact(path, artifact)
  return { path, sha256: createHash('sha256').update(readFileSync(path)).digest('hex') }
}
