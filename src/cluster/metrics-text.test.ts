import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { ofEngine, readSamples, sumByName } from './metrics-text.ts'

const read = (text: string, ...names: string[]) => readSamples(text, new Set(names))

describe('Prometheus text', () => {
  it('returns the requested samples with their labels', () => {
    const text = `# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="Qwen/Qwen3-30B-A3B"} 3.0
vllm:num_requests_running{engine="1",model_name="Qwen/Qwen3-30B-A3B"} 4.0
vllm:num_requests_running_other 9
eldr_decode_batch 17 1700000000000
`
    expect(read(text, 'vllm:num_requests_running', 'eldr_decode_batch', 'absent')).toEqual([
      {
        name: 'vllm:num_requests_running',
        labels: { engine: '0', model_name: 'Qwen/Qwen3-30B-A3B' },
        value: 3,
      },
      {
        name: 'vllm:num_requests_running',
        labels: { engine: '1', model_name: 'Qwen/Qwen3-30B-A3B' },
        value: 4,
      },
      { name: 'eldr_decode_batch', labels: {}, value: 17 },
    ])
    expect([...sumByName(read(text, 'vllm:num_requests_running'))]).toEqual([
      ['vllm:num_requests_running', 7],
    ])
  })

  it('of a server with several engines returns those of one rank, if they are labelled', () => {
    const samples = read('a{engine="0"} 1\na{engine="1"} 2\nb 8\n', 'a', 'b')
    expect(Object.fromEntries(sumByName(ofEngine(samples, 1)))).toEqual({ a: 2, b: 8 })
    expect(Object.fromEntries(sumByName(ofEngine(samples, undefined)))).toEqual({ a: 3, b: 8 })
    // For a rank without samples of its own: those of the server.
    expect(Object.fromEntries(sumByName(ofEngine(samples, 5)))).toEqual({ a: 3, b: 8 })
    expect(ofEngine(read('a 1', 'a'), 0)).toHaveLength(1)
  })

  it.each([
    ['a 1', {}, 1],
    ['  a\t 1e-3\r', {}, 0.001],
    ['a{} -2.5', {}, -2.5],
    ['a {x="1"} 4', { x: '1' }, 4],
    ['a{x="1",}4', { x: '1' }, 4],
    ['a{ x = "1" , y="" } .5', { x: '1', y: '' }, 0.5],
    ['a{x="} 7 # {",y="\\"\\\\\\n\\t"} 5', { x: '} 7 # {', y: '"\\\n\\t' }, 5],
    ['a{x="1"} 6 # {trace_id="t"} 0.3 1.7e9', { x: '1' }, 6],
    ['a +Inf', {}, Infinity],
    ['a -Inf', {}, -Infinity],
    ['a NaN', {}, NaN],
  ])('is parsed by the format’s rules: %j', (line, labels, value) => {
    expect(read(`# c\n${line}\nb 1\n`, 'a')).toEqual([{ name: 'a', labels, value }])
    expect(read(line, 'a')).toEqual([{ name: 'a', labels, value }])
  })

  it.each([
    'a',
    'a{',
    'a{x="1" 5',
    'a{x=1} 5',
    'a five',
    'a 0x10',
    'a constructor',
    'a 1,5',
    '#a 1',
    'a{x="1"}',
    'a{"a"} 1',
    '{} a 1',
    '',
  ])('loses only a broken line: %j', line => {
    expect(read(`a 1\n${line}\na 2`, 'a').map(({ value }) => value)).toEqual([1, 2])
  })

  it('has no sum without a number: a missing figure is not 0', () => {
    expect([...sumByName(read('a NaN\nb 1\nb +Inf', 'a', 'b', 'c'))]).toEqual([['b', 1]])
  })

  it('returns any labels and values written by the rules', () => {
    const escaped = (text: string) =>
      text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n').replaceAll('"', '\\"')
    const labels = fc.dictionary(fc.stringMatching(/^[a-z]{1,5}$/), fc.string())
    fc.assert(
      fc.property(fc.array(fc.tuple(labels, fc.double()), { maxLength: 8 }), lines => {
        const line = ([labels, value]: (typeof lines)[number]) =>
          `a{${Object.entries(labels)
            .map(([key, text]) => `${key}="${escaped(text)}"`)
            .join()}} ${String(value).replace('Infinity', 'Inf')}`
        expect(read(lines.map(line).join('\n'), 'a')).toEqual(
          lines.map(([labels, value]) => ({
            name: 'a',
            labels: { ...labels },
            value: value || Math.abs(value),
          })),
        )
      }),
    )
  })

  it('never throws, whatever a worker sends', () => {
    fc.assert(
      fc.property(
        fc
          .array(fc.oneof(fc.string(), fc.constantFrom('a', '{', '}', '"', '\\', '\n', ' ', '1', 'x=', ',')))
          .map(parts => parts.join('')),
        text => {
          expect(read(text, 'a').every(({ name }) => name === 'a')).toBe(true)
        },
      ),
    )
  })
})
