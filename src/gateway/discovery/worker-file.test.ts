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
    ['decode: [{url: http://a:1, cluster: 0}, http://b:1]', 'w.yaml:1:41: decode[1] has no cluster and others have: give one to every decode worker or to none'], // prettier-ignore
  ])('that is not right is refused whole: %j', (text, expected) => {
    expect(badOf(text)).toEqual({ reason: 'broken', text: expected })
  })

  it('says a few of many problems', () => {
    const { text } = badOf(`decode: [${Array.from({ length: 50 }, () => 'x').join(', ')}]`)
    expect(text).toContain('and 45 more')
  })
})
