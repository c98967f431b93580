import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { workerName } from '../config/worker-id.ts'
import { type DiscoveredWorker, sortedById, deduplicate } from './source.ts'
import { WorkerIndexes } from '../control/discovery/worker-index.ts'

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

describe('worker ids', () => {
  it('are valid for any name', () => {
    expect(workerName('decode-0')).toBe('decode-0')
    expect(workerName('llm:decode-0')).toBe('llm:decode-0')
    fc.assert(
      fc.property(fc.string({ minLength: 1, maxLength: 300, unit: 'grapheme' }), name =>
        /^[\w.:@[\]-]{1,128}$/.test(workerName(name)),
      ),
    )
  })

  it('stay different after invalid characters are replaced', () => {
    const names = ['a/b', 'a b', 'ä', 'ö', 'x'.repeat(200), `${'x'.repeat(200)}y`]
    expect(new Set(names.map(workerName)).size).toBe(names.length)
  })

  it('sort naturally', () => {
    const ids = (...names: string[]) => sortedById(names.map(id => ({ id }))).map(({ id }) => id)
    expect(ids('decode-10', 'decode-9', 'Decode-1', 'decode-1')).toEqual([
      'decode-1',
      'Decode-1',
      'decode-9',
      'decode-10',
    ])
  })
})

describe('duplicate workers', () => {
  it('are used once, and reported', () => {
    const both = [
      found('a', 'http://a:1', 'prefill'),
      found('a', 'http://a:1'),
      found('b', 'http://a:1'),
      found('c', 'http://c:1'),
    ]
    expect(deduplicate(both)).toEqual({
      found: [both[0], both[3]],
      notes: [
        'a is listed as both a prefill and a decode worker: used as prefill',
        'b has the same address as a, http://a:1: skipped',
      ],
    })
  })

  it('are used if ready: the address of a terminated pod may be reused', () => {
    const [old, next] = [found('old', 'http://a:1', 'decode', false), found('new', 'http://a:1')]
    expect(deduplicate([old, next])).toEqual({ found: [next], notes: [] })
  })
})

describe('worker indexes', () => {
  const indexesOf = (indexes: WorkerIndexes, ids: string) => ids.split('').map(id => indexes.indexOf(id))

  it('are assigned in the order of ids, kept, and reused when free', () => {
    const indexes = new WorkerIndexes()
    indexes.update(['c', 'a', 'b'], new Map(), new Set())
    expect(indexesOf(indexes, 'abc')).toEqual([0, 1, 2])
    indexes.update(['c', 'a'], new Map([['c', 2]]), new Set())
    indexes.update(['c', 'a', 'x'], new Map([['c', 2]]), new Set())
    expect(indexesOf(indexes, 'axc')).toEqual([0, 1, 2])
  })

  it('differ from those of workers from other sources', () => {
    const indexes = new WorkerIndexes()
    indexes.update(['a', 'b'], new Map(), new Set([0, 2]))
    expect(indexesOf(indexes, 'ab')).toEqual([1, 3])
    indexes.update(['a', 'b'], new Map([['b', 3]]), new Set([0, 1, 2]))
    expect(indexesOf(indexes, 'ab')).toEqual([4, 3])
  })

  it('are unique and stable', () => {
    const names = fc.uniqueArray(fc.stringMatching(/^[a-z]\d?$/), { maxLength: 12 })
    fc.assert(
      fc.property(fc.array(names, { maxLength: 8 }), lists => {
        const indexes = new WorkerIndexes()
        for (const ids of lists) {
          const before = new Map(
            ids.flatMap(id =>
              indexes.indexOf(id) === undefined ? [] : [[id, indexes.indexOf(id)] as const],
            ),
          )
          indexes.update(ids, new Map(), new Set([3]))
          const now = ids.map(id => indexes.indexOf(id)!)
          expect(new Set(now).size).toBe(ids.length)
          expect(now).not.toContain(3)
          for (const [id, index] of before) expect(indexes.indexOf(id)).toBe(index)
        }
      }),
    )
  })
})
