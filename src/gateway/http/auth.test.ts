import { timingSafeEqual } from 'node:crypto'
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http'
import { describe, expect, it } from 'vitest'
import { createKeyCheck, isLoopback } from './auth.ts'

const may = (keys: readonly string[], headers: IncomingHttpHeaders) =>
  createKeyCheck(keys)({ headers } as IncomingMessage)

describe('a key', () => {
  it.each([
    ['of two', ['a', 'b'], { authorization: 'Bearer b' }, true],
    ['in its own header', ['a'], { 'x-api-key': 'a' }, true],
    ['that is longer', ['a'], { authorization: 'Bearer aa' }, false],
    ['that is empty, although one of ours is', [''], { authorization: 'Bearer ' }, false],
    ['that is not there', ['a'], {}, false],
    ['with blanks around it', ['a'], { authorization: 'Bearer a ' }, false],
    ['of a million characters', ['a'], { authorization: `Bearer ${'a'.repeat(1_000_000)}` }, false],
    ['after a million blanks', ['a'], { authorization: `Bearer ${' '.repeat(1_000_000)}` }, false],
  ])('%s', (_, keys, headers, wanted) => {
    expect(may(keys, headers)).toBe(wanted)
  })

  it('takes as long to refuse as to accept, near misses or not: all are hashed to one length and all compared', () => {
    const compared: number[] = []
    const check = createKeyCheck(['key-0', 'key-1', 'key-2'], (a, b) => {
      compared.push(a.byteLength)
      return timingSafeEqual(a, b)
    })
    for (const guess of ['key-0', 'key-2', 'key-', 'key-00', 'quite-another']) {
      compared.length = 0
      check({ headers: { authorization: `Bearer ${guess}` } } as IncomingMessage)
      expect(compared).toEqual([32, 32, 32])
    }
  })
})

describe('the machine itself', () => {
  it.each([
    ['127.0.0.1', true],
    ['127.8.9.1', false],
    ['::1', true],
    ['::ffff:127.0.0.1', true],
    ['10.0.0.1', false],
    ['::ffff:10.0.0.1', false],
    ['fe80::1', false],
    ['', false],
  ])('%s: %s', (remoteAddress, wanted) => {
    expect(isLoopback({ socket: { remoteAddress } } as unknown as IncomingMessage)).toBe(wanted)
  })
})
