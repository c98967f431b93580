/** Files and numbers made by Python (golden/trace/make.py); ours are identical byte for byte. */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { decodeFloat16 } from '../src/math/float16.ts'
import { type Dtype, viewAs } from '../src/trace/dtype.ts'
import { withSafetensors } from '../src/trace/safetensors-file.ts'
import { withTrace } from '../src/trace/trace.ts'
import { bytesOf, traceTensors } from './trace-support.ts'

const folder = join(dirname(fileURLToPath(import.meta.url)), 'golden', 'trace')
const everyDtype = join(folder, 'every-dtype.safetensors')
const tracePath = join(folder, 'trace.safetensors')

interface Golden {
  /** Values as the bytes of the file, and as float32 with 'nan', 'inf' and '-inf', which JSON lacks. */
  readonly tensors: readonly {
    name: string
    dtype: Dtype
    shape: number[]
    hex: string
    float32: (number | string)[]
  }[]
  readonly halves: { readonly decode: string }
}
const golden = JSON.parse(readFileSync(join(folder, 'golden.json'), 'utf8')) as Golden
const special: Readonly<Record<string, number>> = { nan: NaN, inf: Infinity, '-inf': -Infinity }
const bufferOf = (hex: string): ArrayBuffer => new Uint8Array(Buffer.from(hex, 'hex')).buffer

describe('a file written by Python', () => {
  it('has every type, and reads as the same bytes and numbers', async () => {
    await withSafetensors(everyDtype, async file => {
      expect(file.metadata).toEqual({ note: 'one key, so that the order is not random' })
      expect([...file.tensors.keys()].sort()).toEqual(golden.tensors.map(({ name }) => name).sort())
      for (const { name, dtype, shape, hex, float32 } of golden.tensors) {
        expect(file.info(name)).toMatchObject({ dtype, shape })
        expect(await file.readAs(name, dtype)).toEqual(viewAs(dtype, bufferOf(hex)))
        expect(await file.readFloat32(name)).toEqual(
          Float32Array.from(float32, x => (typeof x === 'string' ? special[x]! : x)),
        )
      }
    })
  })

  it('is identical to our writer’s output for the same tensors', async () => {
    const tensors = Object.fromEntries(
      golden.tensors.map(({ name, dtype, shape, hex }) => [
        name,
        { dtype, shape, data: viewAs(dtype, bufferOf(hex)) },
      ]),
    )
    const ours = await bytesOf({ metadata: { note: 'one key, so that the order is not random' }, tensors })
    expect(ours).toEqual(readFileSync(everyDtype))
  })

  it('is a valid trace, and identical to ours', async () => {
    await withTrace(tracePath, async trace => {
      expect(trace).toMatchObject({
        model: 'toy',
        requests: 3,
        layers: 2,
        experts: 4,
        topK: 2,
        gateRows: 2,
        domains: [],
      })
      expect(await trace.prefillCounts()).toEqual(traceTensors.prefill_counts.data)
      expect(await trace.decodeCounts()).toEqual(Uint16Array.from(traceTensors.decode_counts.data))
      expect(await trace.gateProb()).toEqual(new Float32Array(16).fill(0.5))
    })
    const { prefill_counts, decode_steps, gate_prob_sum, decode_expert_ids } = traceTensors
    const ours = await bytesOf({
      metadata: { format: 'eldr.trace.v1', model: 'toy', layers: '2', experts: '4', top_k: '2' },
      tensors: {
        prefill_counts,
        decode_steps,
        gate_prob_sum,
        decode_expert_ids: {
          ...decode_expert_ids,
          dtype: 'U16',
          data: Uint16Array.from(decode_expert_ids.data),
        },
      },
    })
    expect(ours).toEqual(readFileSync(tracePath))
  })
})

describe('half floats', () => {
  it('decode like NumPy, all 65,536', () => {
    const decoded = new Float32Array(65_536)
    decodeFloat16(
      Uint16Array.from({ length: 65_536 }, (_, bits) => bits),
      decoded,
    )
    const withoutNaN = decoded.map(value => (Number.isNaN(value) ? 0 : value))
    expect(createHash('sha256').update(withoutNaN).digest('hex')).toBe(golden.halves.decode)
  })
})
