import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { workerName } from '../config/worker-id.ts'
import { type DiscoveredWorker, sortedById, deduplicate } from './source.ts'
import { Places } from '../control/discovery/worker-index.ts'

const found = (
  id: string,
  url: string,
  role: DiscoveredWorker['role'] = 'decode',
  ready = true,
): DiscoveredWorker => ({
  id,
  url,
  role,
  ready,
})

describe('names of workers', () => {
  it('are those of pods, and can stand in a path whatever they are', () => {
    expect(workerName('decode-0')).toBe('decode-0')
    expect(workerName('llm:decode-0')).toBe('llm:decode-0')
    fc.assert(
      fc.property(fc.string({ minLength: 1, maxLength: 300, unit: 'grapheme' }), name =>
        /^[\w.:@[\]-]{1,128}$/.test(workerName(name)),
      ),
    )
  })

  it('stay apart where they would become the same', () => {
    const names = ['a/b', 'a b', 'ä', 'ö', 'x'.repeat(200), `${'x'.repeat(200)}y`]
    expect(new Set(names.map(workerName)).size).toBe(names.length)
  })

  it('have an order that counts', () => {
    const ids = (...names: string[]) => sortedById(names.map(id => ({ id }))).map(({ id }) => id)
    expect(ids('decode-10', 'decode-9', 'Decode-1', 'decode-1')).toEqual([
      'decode-1',
      'Decode-1',
      'decode-9',
      'decode-10',
    ])
  })
})

describe('workers that are found twice', () => {
  it('are taken once, the first, and named', () => {
    const both = [
      found('a', 'http://a:1', 'prefill'),
      found('a', 'http://a:1'),
      found('b', 'http://a:1'),
      found('c', 'http://c:1'),
    ]
    expect(deduplicate(both)).toEqual({
      found: [both[0], both[3]],
      notes: [
        'a is both a prefill and a decode worker: taken for prefill',
        'b has the address of a, http://a:1: left out',
      ],
    })
  })

  it('are taken where they are ready: addresses of pods that end are given to others', () => {
    const [old, next] = [found('old', 'http://a:1', 'decode', false), found('new', 'http://a:1')]
    expect(deduplicate([old, next])).toEqual({ found: [next], notes: [] })
  })
})

describe('places', () => {
  const placesOf = (places: Places, ids: string) => ids.split('').map(id => places.of(id))

  it('are given in the order of names, kept, and given to others when free', () => {
    const places = new Places()
    places.update(['c', 'a', 'b'], new Map(), new Set())
    expect(placesOf(places, 'abc')).toEqual([0, 1, 2])
    places.update(['c', 'a'], new Map([['c', 2]]), new Set())
    places.update(['c', 'a', 'x'], new Map([['c', 2]]), new Set())
    expect(placesOf(places, 'axc')).toEqual([0, 1, 2])
  })

  it('are not those of workers of others', () => {
    const places = new Places()
    places.update(['a', 'b'], new Map(), new Set([0, 2]))
    expect(placesOf(places, 'ab')).toEqual([1, 3])
    places.update(['a', 'b'], new Map([['b', 3]]), new Set([0, 1, 2]))
    expect(placesOf(places, 'ab')).toEqual([4, 3])
  })

  it('are never the same for two', () => {
    const names = fc.uniqueArray(fc.stringMatching(/^[a-z]\d?$/), { maxLength: 12 })
    fc.assert(
      fc.property(fc.array(names, { maxLength: 8 }), lists => {
        const places = new Places()
        for (const ids of lists) {
          const before = new Map(
            ids.flatMap(id => (places.of(id) === undefined ? [] : [[id, places.of(id)] as const])),
          )
          places.update(ids, new Map(), new Set([3]))
          const now = ids.map(id => places.of(id)!)
          expect(new Set(now).size).toBe(ids.length)
          expect(now).not.toContain(3)
          for (const [id, place] of before) expect(places.of(id)).toBe(place)
        }
      }),
    )
  })
})
