/** Request bodies and queries: the gateway accepts exactly those that the document accepts. */
import * as fc from 'fast-check'
import { request } from 'undici'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Cluster, startCluster } from './cluster.ts'
import { Conformance } from './openapi-support.ts'

let cluster: Cluster
let contract: Conformance
beforeAll(async () => {
  cluster = await startCluster({ prefill: 1, decode: 1 })
  contract = await Conformance.of(cluster.url)
})
afterAll(() => cluster.stop())

const ODD: readonly unknown[] = [null, true, '', 'x', 0, 1, -1, 1.5, [], {}, ['x'], '\0']
/** Valid and invalid values for each key; keys may also be missing or unknown. */
function bodies(keys: Readonly<Record<string, readonly unknown[]>>): fc.Arbitrary<unknown> {
  const values = Object.fromEntries(
    Object.entries({ ...keys, stranger: [1] }).map(([key, some]) => {
      const weight = key === 'stranger' ? 8 : 1
      return [
        key,
        fc.oneof(
          { weight, arbitrary: fc.constant(undefined) },
          { weight: 3, arbitrary: fc.constantFrom(...some) },
          { weight: key === 'stranger' ? 0 : 1, arbitrary: fc.constantFrom(...ODD) },
        ),
      ]
    }),
  )
  return fc.oneof(
    { weight: 12, arbitrary: fc.record(values) },
    { weight: 1, arbitrary: fc.constantFrom(...ODD) },
  )
}

const IDS = ['a', 'a.b:c[1]_-', 'a'.repeat(128), 'a'.repeat(129), 'ä', 'a b', 'a\n']
const CASES = [
  [
    'POST',
    '/eldr/workers',
    'NewWorker',
    {
      role: ['prefill', 'decode', 'both'],
      url: ['http://127.0.0.1:9', 'HTTPS://127.0.0.1:9/', 'ftp://a', '127.0.0.1:9'],
      id: IDS,
      cluster: [0, 7, 1023, 1024],
    },
  ],
  [
    'PUT',
    '/eldr/policy',
    'PolicyChange',
    {
      policy: ['jsq', 'round-robin', 'power_of_two', 'JSQ', 'none'],
      tau: [0, 0.5, 2, 2.1, -0.1],
      prefillPolicy: ['prefix_hash', 'prefix-hash', 'none'],
    },
  ],
  [
    'PUT',
    '/eldr/log-level',
    'LogLevelChange',
    { level: ['silent', 'SILENT', 'none'], forMs: [1, 86_400_000, 86_400_001, 0] },
  ],
  ['POST', '/eldr/refit', 'RefitOrder', { workers: [1, 65_535, 65_536, 0] }],
  ['POST', '/eldr/artifact', 'ArtifactPath', { path: ['nowhere', 'a\0b', '/dev/null'] }],
  ['POST', '/eldr/workers/unknown/drain', 'Nothing', {}],
] as const

describe('a body', () => {
  it.each(CASES)('%s %s is accepted as %s says', async (method, path, schema, keys) => {
    const seen = { taken: 0, refused: 0 }
    await fc.assert(
      fc.asyncProperty(bodies(keys), async body => {
        const text = JSON.stringify(body)
        const response = await request(`${cluster.url}${path}`, {
          method,
          body: text,
          headers: { 'content-type': 'application/json' },
        })
        await response.body.text()
        const wrong = contract.wrongWith({ $ref: `document#/components/schemas/${schema}` }, JSON.parse(text))
        seen[wrong === undefined ? 'taken' : 'refused']++
        expect([text, response.statusCode === 400, response.statusCode < 500]).toEqual([
          text,
          wrong !== undefined,
          true,
        ])
      }),
      { numRuns: 300, seed: 7 },
    )
    expect(Math.min(seen.taken, seen.refused)).toBeGreaterThan(5)
  })

  it('of a generation request is accepted by the gateway if the document accepts it', async () => {
    const keys = {
      prompt: ['a', [1, 2], ['a', 'b'], [[1], [2]]],
      max_tokens: [1, 3],
      stream: [true, false],
      n: [1, 2],
      seed: [-1, 5],
      stop: ['a', ['a', 'b']],
      temperature: [0, 1],
      top_p: [0.5],
    }
    let taken = 0
    await fc.assert(
      fc.asyncProperty(bodies(keys), async body => {
        const response = await cluster.post('/v1/completions', body)
        const text = await response.text()
        if (
          contract.wrongWith(
            { $ref: 'document#/components/schemas/CompletionRequest' },
            JSON.parse(JSON.stringify(body)),
          ) !== undefined
        )
          return
        taken++
        expect([JSON.stringify(body), response.status, response.status === 200 ? '' : text]).toEqual([
          JSON.stringify(body),
          200,
          '',
        ])
      }),
      { numRuns: 300, seed: 7 },
    )
    expect(taken).toBeGreaterThan(50)
    await cluster.idle()
  })

  it('of a query is accepted as the document says', async () => {
    for (const [path, name, values] of [
      ['/eldr/decisions', 'limit', ['1', '50', '999999', '1000000', '0', '-1', '', 'a', '1.5']],
      ['/eldr/experts', 'expected', ['0', '1', '2', '', 'true']],
    ] as const) {
      const { schema } = contract.document.paths[path].get.parameters[0]
      for (const value of values) {
        const { status } = await fetch(`${cluster.url}${path}?${name}=${value}`)
        const typed = schema.type === 'integer' ? (value === '' ? NaN : Number(value)) : value
        expect([path, value, status]).toEqual([
          path,
          value,
          contract.wrongWith(schema, typed) === undefined ? 200 : 400,
        ])
      }
    }
  })
})
