import { describe, expect, it } from 'vitest'
import { type Bad, LookFailure } from './found.ts'
import { readWorkerFile } from './worker-file.ts'

function badOf(text: string): Bad {
  try {
    readWorkerFile('w.yaml', text)
  } catch (error) {
    if (error instanceof LookFailure) return error.bad
    throw error
  }
  throw new Error('nothing is wrong with it')
}

describe('a file of workers', () => {
  it('has lists as the configuration has them, in YAML or JSON', () => {
    const workers = [
      { id: 'a:1', role: 'prefill', url: 'http://a:1', ready: true },
      { id: 'd', role: 'decode', url: 'https://b', ready: true, cluster: 3 },
    ]
    expect(readWorkerFile('w.yaml', 'prefill: [http://a:1/]\ndecode:\n  - {url: https://b, id: d, cluster: 3}\n')).toEqual(workers)
    expect(readWorkerFile('w.json', '{"prefill":["http://a:1"],"decode":[{"url":"https://b","id":"d","cluster":3}]}')).toEqual(workers)
  })

  it('may name ranks, and makes them of servers that say nothing where the settings do', () => {
    const text =
      'prefill: [http://p:1]\ndecode:\n  - http://a:1\n  - {url: http://b:1, ranks: 1}\n  - {url: http://c:1, dpRank: 5}\n  - {url: http://d:1, id: d, ranks: 3}\n'
    const names = (ranks: object) => readWorkerFile('w.yaml', text, ranks).map(({ id, dpRank }) => [id, dpRank])
    const told = [['c:1@5', 5], ['d@0', 0], ['d@1', 1], ['d@2', 2]] // prettier-ignore
    expect(names({})).toEqual([['p:1', undefined], ['a:1', undefined], ['b:1', undefined], ...told]) // prettier-ignore
    expect(names({ decodeRanks: 2 })).toEqual([['p:1', undefined], ['a:1@0', 0], ['a:1@1', 1], ['b:1', undefined], ...told]) // prettier-ignore
    expect(names({ ranks: 2, decodeRanks: 1 }).slice(0, 3)).toEqual([['p:1@0', 0], ['p:1@1', 1], ['a:1', undefined]]) // prettier-ignore
  })

  it.each(['', '\n', '# nothing\n', '{}', 'prefill: []\ndecode: []\n'])('that names nobody is empty: %j', text => {
    expect(badOf(text)).toEqual({ reason: 'empty', text: 'w.yaml names no worker: expected the lists prefill and decode' })
  })

  it.each([
    ['prefill: [http://a:1', 'w.yaml:1:21: Flow sequence in block collection must be sufficiently indented and end with a ]'],
    ['decode: [ftp://a]', 'w.yaml:1:10: decode[0]: expected an http or https URL such as http://10.0.0.7:8000, found the scheme ftp'],
    ['decode: [7]', 'w.yaml:1:10: decode[0]: expected a URL or an object with url'],
    ['decoder: [http://a:1]', 'w.yaml:1:1: unknown key decoder'],
    ['- http://a:1', 'w.yaml:1:1: the file: Invalid input: expected object, received array'],
    ['decode: [{url: http://a:1, weight: 2}]', 'w.yaml:1:10: unknown key decode[0].weight'],
    ['decode: [http://a:1, http://a:1]', 'w.yaml:1:22: two workers with the url http://a:1: decode[0] and decode[1]'],
    ['prefill: [http://a:1]\ndecode: [http://a:1]', 'w.yaml:2:10: two workers with the url http://a:1: prefill[0] and decode[0]'],
    ['decode: [http://a:1, http://a:1@0]', 'w.yaml:1:22: http://a:1 with a rank and without: decode[0] and decode[1]; without one it is all engines of the server'], // prettier-ignore
    ['decode: [{url: http://a:1, ranks: 0}]', 'w.yaml:1:35: decode[0].ranks: Too small: expected number to be >=1'],
    ['decode: [{url: http://a:1, ranks: 2, dpRank: 0}]', 'w.yaml:1:10: decode[0] has dpRank and ranks: give one of them'],
    ['decode: [{url: http://a:1, cluster: 0}, http://b:1]', 'w.yaml:1:41: decode[1] has no cluster and others have: give one to every decode worker or to none'], // prettier-ignore
  ])('that is not right is refused whole: %j', (text, expected) => {
    expect(badOf(text)).toEqual({ reason: 'broken', text: expected })
  })

  it('says a few of many problems', () => {
    const { text } = badOf(`decode: [${Array.from({ length: 50 }, () => 'x').join(', ')}]`)
    expect(text).toContain('and 45 more')
  })
})
