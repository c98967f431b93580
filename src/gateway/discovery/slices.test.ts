import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { JsonLines } from './json-lines.ts'
import { readSlice, type Slice, workersIn } from './slices.ts'

const OPTIONS = { role: 'decode', scheme: 'http', manyNamespaces: false } as const
const pod = (name: string) => ({ kind: 'Pod', name })

function slice(endpoints: unknown[], more: object = {}): Slice {
  const read = readSlice({
    kind: 'EndpointSlice',
    metadata: { name: 's', namespace: 'llm', resourceVersion: '1' },
    addressType: 'IPv4',
    ports: [{ name: 'http', port: 8000, protocol: 'TCP' }],
    endpoints,
    ...more,
  })
  if (read.kind === 'skipped') throw new Error(read.why)
  return read.slice
}

describe('workers in EndpointSlices', () => {
  it('have the name of their pod, else their address, as id', () => {
    const { found } = workersIn(
      [
        slice([
          { addresses: ['10.0.0.1', '10.0.0.9'], targetRef: pod('d-0') },
          { addresses: ['10.0.0.2'] },
          { addresses: ['10.0.0.3'], targetRef: { kind: 'Node', name: 'n' } },
        ]),
      ],
      OPTIONS,
    )
    expect(found).toEqual([
      { id: 'd-0', role: 'decode', url: 'http://10.0.0.1:8000', ready: true },
      { id: '10.0.0.2:8000', role: 'decode', url: 'http://10.0.0.2:8000', ready: true },
      { id: '10.0.0.3:8000', role: 'decode', url: 'http://10.0.0.3:8000', ready: true },
    ])
    const many = workersIn([slice([{ addresses: ['10.0.0.1'], targetRef: pod('d-0') }])], {
      ...OPTIONS,
      manyNamespaces: true,
    })
    expect(many.found[0]!.id).toBe('llm:d-0')
  })

  it.each([
    [undefined, true],
    [{}, true],
    [{ ready: null, serving: null, terminating: null }, true],
    [{ ready: true, serving: true, terminating: false }, true],
    [{ ready: false }, false],
    [{ ready: false, serving: true, terminating: true }, false],
    [{ ready: true, serving: true, terminating: true }, false],
    [{ ready: true, serving: false }, false],
  ])('with the conditions %j are ready: %s', (conditions, ready) => {
    expect(workersIn([slice([{ addresses: ['10.0.0.1'], conditions }])], OPTIONS).found[0]!.ready).toBe(ready)
  })

  it('have the configured port, else the one named http, else the first', () => {
    const ports = (...list: unknown[]) =>
      workersIn([slice([{ addresses: ['10.0.0.1'] }], { ports: list })], OPTIONS)
    const urlOf = ({ found }: ReturnType<typeof ports>) => found[0]?.url
    expect(urlOf(ports({ name: 'metrics', port: 9 }, { name: 'http', port: 8 }))).toBe('http://10.0.0.1:8')
    expect(urlOf(ports({ name: 'dns', port: 53, protocol: 'UDP' }, { port: 7 }))).toBe('http://10.0.0.1:7')
    expect(
      workersIn([slice([{ addresses: ['10.0.0.1'] }], { ports: [] })], { ...OPTIONS, port: 5 }).found[0]!.url,
    ).toBe('http://10.0.0.1:5')
    expect(ports()).toEqual({
      found: [],
      notes: ['llm/s has no TCP port: set discovery.kubernetes.port (--service-discovery-port)'],
    })
  })

  it('are used once if several slices have them: ready before not ready, IPv4 before IPv6', () => {
    const v4 = slice([{ addresses: ['10.0.0.1'], targetRef: pod('d') }])
    const v6 = slice([{ addresses: ['fd00::1'], targetRef: pod('d') }], { addressType: 'IPv6' })
    const moved = slice([{ addresses: ['10.0.0.1'], targetRef: pod('d'), conditions: { ready: false } }])
    for (const slices of [
      [v4, v6],
      [v6, v4],
      [moved, v4, v6],
      [v4, moved],
    ])
      expect(workersIn(slices, OPTIONS).found).toEqual([
        { id: 'd', role: 'decode', url: 'http://10.0.0.1:8000', ready: true },
      ])
    expect(workersIn([v6], OPTIONS).found[0]!.url).toBe('http://[fd00::1]:8000')
  })

  it('do not depend on the order of slices, even if two services give them different ports', () => {
    const of = (name: string, port: number) =>
      slice([{ addresses: ['10.0.0.1'], targetRef: pod('d') }], {
        metadata: { name, namespace: 'llm', resourceVersion: '1' },
        ports: [{ port }],
      })
    const [a, b] = [of('a', 1), of('b', 2)]
    expect(workersIn([b, a], OPTIONS)).toEqual(workersIn([a, b], OPTIONS))
  })

  it('are skipped if invalid, and nothing throws for any input', () => {
    expect(readSlice({ kind: 'Pod', metadata: { name: 'p', resourceVersion: '1' } })).toEqual({
      kind: 'skipped',
      why: 'Pod p is not an EndpointSlice: skipped',
    })
    expect(readSlice(7)).toMatchObject({ kind: 'skipped' })
    expect(
      workersIn(
        [slice([{ addresses: ['a b'] }, { addresses: ['x@y'] }, { addresses: [7] }, {}, 'x'])],
        OPTIONS,
      ),
    ).toEqual({
      found: [],
      notes: ['llm/s has an invalid address: skipped'],
    })
    const anything = fc.anything({ maxDepth: 4 })
    const likely = fc.record({
      metadata: anything,
      ports: fc.array(fc.record({ port: anything })),
      endpoints: fc.array(
        fc.record({ addresses: fc.array(anything), conditions: anything, targetRef: anything }),
      ),
    })
    fc.assert(
      fc.property(fc.oneof(anything, likely), value => {
        const read = readSlice(value)
        if (read.kind === 'ok') workersIn([read.slice], OPTIONS)
      }),
    )
  })
})

describe('JSON lines', () => {
  it('parse the same however the bytes are split', () => {
    const values = fc.array(fc.jsonValue({ maxDepth: 2 }), { maxLength: 6 })
    fc.assert(
      fc.property(values, fc.array(fc.nat(40), { minLength: 1 }), (list, cuts) => {
        const bytes = Buffer.from(list.map(value => `${JSON.stringify(value)}\n`).join('\r\n'))
        const lines = new JsonLines(1 << 20)
        const seen: unknown[] = []
        for (let at = 0, n = 0; at < bytes.length; n++) {
          const end = at + 1 + cuts[n % cuts.length]!
          seen.push(...lines.push(bytes.subarray(at, end)))
          at = end
        }
        expect(JSON.stringify(seen)).toBe(JSON.stringify(list))
      }),
    )
  })

  it('that are invalid or do not end are refused', () => {
    expect(() => [...new JsonLines(100).push(Buffer.from('{"a":\n'))]).toThrow('not valid JSON')
    expect(() => [...new JsonLines(10).push(Buffer.from('{"a": 1234567890'))]).toThrow('larger than')
  })
})
