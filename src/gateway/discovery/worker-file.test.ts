import { describe, expect, it } from 'vitest'
import { type Problem, LookupFailure } from './source.ts'
import { readPlainJson, readWorkerFile } from './worker-file.ts'

function problemOf(text: string): Problem {
  try {
    readWorkerFile('w.yaml', text)
  } catch (error) {
    if (error instanceof LookupFailure) return error.problem
    throw error
  }
  throw new Error('no problem found')
}

describe('a file of workers', () => {
  it('has the worker lists of the configuration, in YAML or JSON', () => {
    const workers = [
      { id: 'a:1', role: 'prefill', url: 'http://a:1', ready: true },
      { id: 'd', role: 'decode', url: 'https://b', ready: true, cluster: 3 },
    ]
    expect(
      readWorkerFile('w.yaml', 'prefill: [http://a:1/]\ndecode:\n  - {url: https://b, id: d, cluster: 3}\n'),
    ).toEqual(workers)
    expect(
      readWorkerFile(
        'w.json',
        '{"prefill":["http://a:1"],"decode":[{"url":"https://b","id":"d","cluster":3}]}',
      ),
    ).toEqual(workers)
  })

  it('may set ranks; other servers get the number of ranks of the settings', () => {
    const text =
      'prefill: [http://p:1]\ndecode:\n  - http://a:1\n  - {url: http://b:1, ranks: 1}\n  - {url: http://c:1, dpRank: 5}\n  - {url: http://d:1, id: d, ranks: 3}\n'
    const names = (ranks: object) =>
      readWorkerFile('w.yaml', text, ranks).map(({ id, dpRank }) => [id, dpRank])
    const explicit = [
      ['c:1@5', 5],
      ['d@0', 0],
      ['d@1', 1],
      ['d@2', 2],
    ]
    expect(names({})).toEqual([['p:1', undefined], ['a:1', undefined], ['b:1', undefined], ...explicit])
    expect(names({ decodeRanks: 2 })).toEqual([
      ['p:1', undefined],
      ['a:1@0', 0],
      ['a:1@1', 1],
      ['b:1', undefined],
      ...explicit,
    ])
    expect(names({ ranks: 2, decodeRanks: 1 }).slice(0, 3)).toEqual([
      ['p:1@0', 0],
      ['p:1@1', 1],
      ['a:1', undefined],
    ])
  })

  it.each(['', '\n', '# nothing\n', '{}', 'prefill: []\ndecode: []\n'])(
    'without workers is empty: %j',
    text => {
      expect(problemOf(text)).toEqual({
        reason: 'empty',
        text: 'w.yaml lists no workers: expected the lists prefill and decode',
      })
    },
  )

  it.each([
    [
      'prefill: [http://a:1',
      'w.yaml:1:21: Flow sequence in block collection must be sufficiently indented and end with a ]',
    ],
    [
      'decode: [ftp://a]',
      'w.yaml:1:10: decode[0]: expected an http or https URL such as http://10.0.0.7:8000, found the scheme ftp',
    ],
    ['decode: [7]', 'w.yaml:1:10: decode[0]: expected a URL or an object with url'],
    ['decoder: [http://a:1]', 'w.yaml:1:1: unknown key decoder'],
    ['- http://a:1', 'w.yaml:1:1: the file: Invalid input: expected object, received array'],
    ['decode: [{url: http://a:1, weight: 2}]', 'w.yaml:1:10: unknown key decode[0].weight'],
    [
      'decode: [http://a:1, http://a:1]',
      'w.yaml:1:22: two workers with the url http://a:1: decode[0] and decode[1]',
    ],
    [
      'prefill: [http://a:1]\ndecode: [http://a:1]',
      'w.yaml:2:10: two workers with the url http://a:1: prefill[0] and decode[0]',
    ],
    [
      'decode: [http://a:1, http://a:1@0]',
      'w.yaml:1:22: http://a:1 both with and without a rank: decode[0] and decode[1]; without a rank it means the whole server',
    ],
    [
      'decode: [{url: http://a:1, ranks: 0}]',
      'w.yaml:1:35: decode[0].ranks: Too small: expected number to be >=1',
    ],
    [
      'decode: [{url: http://a:1, ranks: 2, dpRank: 0}]',
      'w.yaml:1:10: decode[0] has dpRank and ranks: set only one of them',
    ],
    [
      'decode: [{url: http://a:1, cluster: 0}, http://b:1]',
      'w.yaml:1:41: decode[1] has no cluster but others do: set it for all decode workers or for none',
    ],
  ])('that is invalid is refused completely: %j', (text, expected) => {
    expect(problemOf(text)).toEqual({ reason: 'broken', text: expected })
  })

  it.each([
    ['', 4096, 4097],
    [', ranks: 4', 1024, 1025],
    [', ranks: 1024', 4, 5],
  ])('has a limit of workers, counting each rank%s', (ranks, most, tooMany) => {
    const lists = (count: number) =>
      `decode:\n${Array.from({ length: count }, (_, n) => `  - {url: "http://a:${n + 1}"${ranks}}\n`).join('')}`
    expect(readWorkerFile('w.yaml', lists(most))).toHaveLength(4096)
    const text =
      'w.yaml lists more than 4096 workers (counting each rank): list fewer, or split them among several gateways'
    expect(problemOf(lists(tooMany))).toEqual({ reason: 'broken', text })
  })

  it('counts ranks of the settings, except for workers with their own rank', () => {
    const decode = Array.from({ length: 3000 }, (_, n) => `http://a:${n + 1}`)
    expect(() => readWorkerFile('w.json', JSON.stringify({ decode }), { ranks: 2 })).toThrow('more than 4096')
    expect(() => readPlainJson('w.json', JSON.stringify({ decode }), { ranks: 2 })).toThrow('more than 4096')
    const own = JSON.stringify({ decode: decode.map(url => `${url}@0`) })
    expect(readPlainJson('w.json', own, { ranks: 2 })).toHaveLength(3000)
  })

  it('has only a few of many problems reported', () => {
    const { text } = problemOf(`decode: [${Array.from({ length: 50 }, () => 'x').join(', ')}]`)
    expect(text).toContain('and 45 more')
  })
})

describe('a file of workers that is plain JSON', () => {
  it.each([
    '{"decode":["http://a:1"]}',
    ' {\n "prefill": ["http://a:1/"],\n "decode": [{"url": "https://b", "id": "d", "cluster": 3}]\n}\n',
    '{"decode":[{"url":"http://a:1","ranks":2},"http://b:1@5","http://c:1"]}',
  ])('parses like YAML: %j', text => {
    const ranks = { decodeRanks: 3 }
    expect(readPlainJson('w', text, ranks)).toEqual(readWorkerFile('w', text, ranks))
  })

  // The YAML parser reports each of these with its location.
  it.each([
    ['is YAML', 'decode: [http://a:1]'],
    ['is YAML in braces', '{decode: [http://a:1]}'],
    ['has a key twice', '{"decode":["http://a:1"],"decode":["http://b:1"]}'],
    ['has a key of a worker twice', '{"decode":[{"url":"http://a:1","url":"http://b:1"}]}'],
    ['has an unknown key', '{"decoder":["http://a:1"]}'],
    ['has the same worker twice', '{"decode":["http://a:1","http://a:1"]}'],
    ['has no workers', '{"decode":[]}'],
    ['is cut off', '{"decode":["http://a:1"'],
    ['is deeper than the stack', `{"decode":${'['.repeat(200_000)}${']'.repeat(200_000)}}`],
  ])('and %s is left to the YAML parser', (_, text) => {
    expect(readPlainJson('w', text)).toBeUndefined()
  })
})
