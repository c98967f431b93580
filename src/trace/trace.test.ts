import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import {
  failure,
  temporaryFolder,
  type TraceChanges,
  traceTensors,
  traceWith,
} from '../../test/trace-support.ts'
import type { ErrorCode } from '../errors.ts'
import { bytesPer, type Dtype, viewAs } from './dtype.ts'
import { type TensorToWrite, writeSafetensors } from './safetensors-write.ts'
import { openTrace, type Trace, type TracePurpose, withTrace } from './trace.ts'

const folder = temporaryFolder()
afterAll(folder.remove)
const path = join(folder.path, 'toy.safetensors')

async function written(changes?: TraceChanges): Promise<string> {
  await writeSafetensors(path, traceWith(changes))
  return path
}
const changed = <T>(changes: TraceChanges, use: (trace: Trace) => Promise<T>) =>
  written(changes).then(file => withTrace(file, use))
const missing = (purpose: TracePurpose, ...absent: string[]) =>
  changed({ tensors: Object.fromEntries(absent.map(name => [name, undefined])) }, async trace =>
    trace.missingFor(purpose),
  )

describe('openTrace', () => {
  it('has the values of its metadata and shapes', async () => {
    await changed({}, async trace => {
      expect(trace).toMatchObject({
        path,
        model: 'toy',
        layers: 2,
        experts: 4,
        topK: 2,
        requests: 3,
        gateRows: 2,
        maxSteps: 2,
        recentHalfLife: 64,
      })
      expect(trace).toMatchObject({
        domains: ['code', 'law'],
        workload: 'task',
        split: 'calibration',
        ignored: [],
      })
      expect(trace.has('prefill_counts')).toBe(true)
      expect(await trace.sha256()).toMatch(/^[0-9a-f]{64}$/)
    })
  })

  it('requires only prefill_counts and the shape of the model', async () => {
    const { prefill_counts } = traceTensors
    await writeSafetensors(path, {
      metadata: { format: 'eldr.trace.v1', model: 'toy', layers: '2', experts: '4', top_k: '2' },
      tensors: { prefill_counts, later: zeros('F64', [1]) },
    })
    await withTrace(path, async trace => {
      expect(trace).toMatchObject({ domains: [], gateRows: 0, maxSteps: 0, ignored: ['later'] })
      expect(trace.workload).toBeUndefined()
      expect(await trace.prefillCounts()).toEqual(prefill_counts.data)
      expect(await trace.domain()).toBeUndefined()
      expect(await trace.promptTokens()).toBeUndefined()
      expect(await failure(path, () => trace.decodeCounts())).toHaveProperty('code', 'ELDR_TENSOR_MISSING')
      expect(await failure(path, () => trace.prefillRecent())).toHaveProperty('code', 'ELDR_TENSOR_MISSING')
    })
  })

  it.each<[string, ErrorCode, TraceChanges]>([
    ['another version', 'ELDR_FILE_UNKNOWN_VERSION', { metadata: { format: 'eldr.trace.v2' } }],
    ['an artifact', 'ELDR_FILE_WRONG_KIND', { metadata: { format: 'eldr.artifact.v1' } }],
    ['a file without a format', 'ELDR_FILE_WRONG_KIND', { metadata: { format: undefined } }],
    ['no model', 'ELDR_FILE_BAD_METADATA', { metadata: { model: undefined } }],
    ['no layers', 'ELDR_FILE_BAD_METADATA', { metadata: { layers: undefined } }],
    ['no layer', 'ELDR_FILE_BAD_METADATA', { metadata: { layers: '0' } }],
    ['negative experts', 'ELDR_FILE_BAD_METADATA', { metadata: { experts: '-4' } }],
    ['experts without number', 'ELDR_FILE_BAD_METADATA', { metadata: { experts: '99999999' } }],
    ['experts that are not a whole number', 'ELDR_FILE_BAD_METADATA', { metadata: { experts: '4.0' } }],
    ['experts in another notation', 'ELDR_FILE_BAD_METADATA', { metadata: { experts: '0x4' } }],
    ['more choices than experts', 'ELDR_FILE_BAD_METADATA', { metadata: { top_k: '5' } }],
    ['a domain without a name', 'ELDR_FILE_BAD_METADATA', { metadata: { domains: 'code,,law' } }],
    ['two domains of one name', 'ELDR_FILE_BAD_METADATA', { metadata: { domains: 'law,law' } }],
    ['domain indices without names', 'ELDR_FILE_BAD_METADATA', { metadata: { domains: undefined } }],
    [
      'more domains than a byte tells apart',
      'ELDR_FILE_BAD_METADATA',
      { metadata: { domains: Array.from({ length: 257 }, (_, i) => i).join() } },
    ],
    ['a half-life of nothing', 'ELDR_FILE_BAD_METADATA', { metadata: { recent_half_life: '0' } }],
    ['a half-life that is no number', 'ELDR_FILE_BAD_METADATA', { metadata: { recent_half_life: 'NaN' } }],
    ['no prefill counts', 'ELDR_TENSOR_MISSING', { tensors: { prefill_counts: undefined } }],
    [
      'counts of the wrong type',
      'ELDR_TENSOR_BAD_TYPE',
      { tensors: { prefill_counts: zeros('I16', [3, 2, 4]) } },
    ],
    [
      'gate scores of the wrong type',
      'ELDR_TENSOR_BAD_TYPE',
      { tensors: { gate_prob_sum: zeros('BF16', [2, 2, 4]) } },
    ],
    ['a 16-bit domain', 'ELDR_TENSOR_BAD_TYPE', { tensors: { domain: zeros('U16', [3]) } }],
    ['experts that the counts do not have', 'ELDR_TENSOR_BAD_SHAPE', { metadata: { experts: '5' } }],
    ['layers that the counts do not have', 'ELDR_TENSOR_BAD_SHAPE', { metadata: { layers: '3' } }],
    ['choices that the ids do not have', 'ELDR_TENSOR_BAD_SHAPE', { metadata: { top_k: '3' } }],
    [
      'counts with a dimension too few',
      'ELDR_TENSOR_BAD_SHAPE',
      { tensors: { prefill_counts: zeros('U16', [3, 8]) } },
    ],
    ['counts that are a scalar', 'ELDR_TENSOR_BAD_SHAPE', { tensors: { prefill_counts: zeros('U16', []) } }],
    [
      'fewer decode steps than requests',
      'ELDR_TENSOR_BAD_SHAPE',
      { tensors: { decode_steps: zeros('U16', [2]) } },
    ],
    [
      'more gate rows than requests',
      'ELDR_TENSOR_BAD_SHAPE',
      { tensors: { gate_prob_sum: zeros('F16', [4, 2, 4]) } },
    ],
    [
      'more steps than can be counted',
      'ELDR_TENSOR_BAD_SHAPE',
      { tensors: { decode_expert_ids: zeros('U8', [3, 65_536, 2, 2]) } },
    ],
  ])('rejects %s', async (_, code, changes) => {
    await written(changes)
    expect(await failure(path, () => openTrace(path))).toHaveProperty('code', code)
  })

  it('rejects a trace without requests', async () => {
    const empty = zeros('U16', [0, 2, 4])
    await writeSafetensors(path, { metadata: traceWith().metadata!, tensors: { prefill_counts: empty } })
    expect(await failure(path, () => openTrace(path))).toHaveProperty('code', 'ELDR_TRACE_TOO_SMALL')
  })

  it('rejects a file that is not safetensors', async () => {
    writeFileSync(path, 'a text that is longer than ten bytes')
    expect(await failure(path, () => openTrace(path))).toHaveProperty('code', 'ELDR_FILE_NOT_SAFETENSORS')
  })

  it('reports what is missing for each purpose', async () => {
    for (const purpose of ['signatures', 'quality', 'gate', 'recent', 'replay'] as const)
      expect(await missing(purpose)).toEqual([])
    expect(await missing('quality', 'decode_counts')).toEqual([])
    expect(await missing('quality', 'decode_expert_ids')).toEqual([])
    expect(await missing('quality', 'decode_counts', 'decode_expert_ids', 'decode_steps')).toEqual([
      'decode_counts',
      'decode_steps',
    ])
    expect(await missing('replay', 'decode_expert_ids')).toEqual(['decode_expert_ids'])
    expect(await missing('gate', 'gate_logit_mean')).toEqual(['gate_logit_mean'])
    expect(await missing('recent', 'prefill_recent')).toEqual(['prefill_recent'])
    const noHalfLife = { metadata: { recent_half_life: undefined } }
    expect(await changed(noHalfLife, async trace => trace.missingFor('recent'))).toEqual([
      'recent_half_life in the metadata',
    ])
    await changed({ tensors: { decode_expert_ids: undefined, decode_counts: undefined } }, async trace => {
      trace.need('signatures')
      const { code, message } = await failure(path, () => trace.need('quality'))
      expect(code).toBe('ELDR_TENSOR_MISSING')
      expect(message).toContain(
        'found no decode_counts, expected decode_steps and either decode_counts or decode_expert_ids for quality',
      )
    })
  })
})

describe('a trace', () => {
  it('reads rows of 8-bit and of 16-bit counts', async () => {
    const { prefill_counts, decode_counts } = traceTensors
    const narrow = { dtype: 'U8', shape: [3, 2, 4], data: Uint8Array.from(prefill_counts.data) } as const
    for (const tensor of [prefill_counts, narrow]) {
      await changed({ tensors: { prefill_counts: tensor } }, async trace => {
        expect(await trace.prefillCounts()).toEqual(prefill_counts.data)
        expect(await trace.prefillCounts(1, 2)).toEqual(prefill_counts.data.slice(8, 16))
        expect(await trace.decodeCounts(1)).toEqual(Uint16Array.from(decode_counts.data.slice(8)))
        await expect(trace.prefillCounts(2, 4)).rejects.toThrow(RangeError)
      })
    }
  })

  it('counts decode choices from the ids if there are no counts, and ignores padding', async () => {
    await changed({ tensors: { decode_counts: undefined } }, async trace => {
      const expected = Uint16Array.from(traceTensors.decode_counts.data)
      expect(await trace.decodeCounts()).toEqual(expected)
      expect(await trace.decodeCounts(1, 2)).toEqual(expected.slice(8, 16))
    })
  })

  it('reads gate scores of the rows that have them, and tensors with one value per request', async () => {
    await changed(
      { tensors: { decode_steps: { dtype: 'U8', shape: [3], data: new Uint8Array([2, 1, 0]) } } },
      async trace => {
        expect(await trace.gateProb()).toEqual(new Float32Array(16).fill(0.5))
        expect(await trace.gateLogit(1)).toEqual(new Float32Array(8).fill(-2))
        expect(await trace.prefillRecent(0, 1)).toEqual(new Float32Array(8).fill(0.5))
        expect(await trace.decodeSteps()).toEqual(new Uint16Array([2, 1, 0]))
        expect(await trace.promptTokens()).toEqual(new Uint16Array([3, 4, 1]))
        expect(await trace.domain()).toEqual(new Uint8Array([0, 1, 1]))
        expect(await trace.decodeExpertIds(1, 2)).toEqual(traceTensors.decode_expert_ids.data.slice(8, 16))
      },
    )
  })

  it.each<[string, string, TraceChanges, (trace: Trace) => Promise<unknown>]>([
    [
      'NaN in a half',
      'NaN in gate_prob_sum of request 1, layer 0, expert 2',
      put('gate_prob_sum', 10, 0x7e00),
      trace => trace.gateProb(),
    ],
    [
      'infinity in a half',
      '-Infinity in gate_logit_mean of request 1, layer 1, expert 3',
      put('gate_logit_mean', 15, 0xfc00),
      trace => trace.gateLogit(1),
    ],
    [
      'NaN in a float',
      'NaN in prefill_recent of request 2, layer 1, expert 0',
      put('prefill_recent', 20, NaN),
      trace => trace.prefillRecent(2),
    ],
    [
      'a negative recent count',
      '-1 in prefill_recent of request 0',
      put('prefill_recent', 0, -1),
      trace => trace.prefillRecent(),
    ],
    [
      'a negative gate probability',
      '-2 in gate_prob_sum of request 0',
      put('gate_prob_sum', 0, 0xc000),
      trace => trace.gateProb(),
    ],
    ['a domain without a name', '2 in domain of request 1', put('domain', 1, 2), trace => trace.domain()],
    [
      'more firings than steps',
      '2 in decode_counts of request 1, layer 1, expert 0',
      put('decode_counts', 12, 2),
      trace => trace.decodeCounts(1),
    ],
    [
      'firings without a step',
      '1 in decode_counts of request 2',
      put('decode_counts', 16, 1),
      trace => trace.decodeCounts(),
    ],
    [
      'more firings than choices',
      'a sum of 5 over the experts in decode_counts of request 0, layer 0',
      put('decode_counts', 3, 1),
      trace => trace.decodeCounts(),
    ],
    [
      'an expert that is not there',
      'expert 4 in decode_expert_ids of request 0, layer 1, step 1',
      put('decode_expert_ids', 6, 4),
      trace => trace.decodeExpertIds(),
    ],
    [
      'an expert chosen twice',
      'expert 1 twice in decode_expert_ids of request 1, layer 0, step 0',
      put('decode_expert_ids', 9, 1),
      trace => trace.decodeExpertIds(1),
    ],
    [
      'more steps than ids',
      '3 in decode_steps of request 0',
      put('decode_steps', 0, 3),
      trace => trace.decodeSteps(),
    ],
    [
      'more tokens on an expert than the prompt has',
      '5 in prefill_counts of request 1, layer 0, expert 0',
      put('prefill_counts', 8, 5),
      trace => trace.prefillCounts(1),
    ],
    [
      'more choices than the prompt makes',
      'a sum of 7 over the experts in prefill_counts of request 0',
      put('prefill_counts', 2, 1),
      trace => trace.prefillCounts(),
    ],
  ])('rejects %s and names its position', async (_, place, changes, read) => {
    await changed(changes, async trace => {
      const { code, message } = await failure(path, () => read(trace))
      expect(code).toBe('ELDR_TENSOR_BAD_VALUE')
      expect(message).toContain(place)
    })
  })

  it('accepts that part of a prompt was not seen', async () => {
    await changed(put('prefill_counts', 0, 0), async trace =>
      expect((await trace.prefillCounts())[0]).toBe(0),
    )
  })
})

/** The valid trace with one value changed. */
function put(name: keyof typeof traceTensors, index: number, value: number): TraceChanges {
  const { dtype, shape, data } = traceTensors[name]
  const changedData = data.slice()
  changedData[index] = value
  return { tensors: { [name]: { dtype, shape, data: changedData } } }
}

function zeros(dtype: Dtype, shape: number[]): TensorToWrite {
  const bytes = shape.reduce((product, size) => product * size, bytesPer(dtype))
  return { dtype, shape, data: viewAs(dtype, new ArrayBuffer(bytes)) }
}
