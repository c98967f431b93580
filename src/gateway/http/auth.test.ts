import { timingSafeEqual } from 'node:crypto'
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http'
import { describe, expect, it } from 'vitest'
import { createKeyCheck, isLoopback } from './auth.ts'

const isAllowed = (keys: readonly string[], headers: IncomingHttpHeaders) =>
  createKeyCheck(keys)({ headers } as IncomingMessage)

describe('API key', () => {
  it.each([
    ['one of two keys', ['a', 'b'], { authorization: 'Bearer b' }, true],
    ['in x-api-key', ['a'], { 'x-api-key': 'a' }, true],
    ['with a valid key as its prefix', ['a'], { authorization: 'Bearer aa' }, false],
    ['empty, even if an accepted key is empty', [''], { authorization: 'Bearer ' }, false],
    ['missing', ['a'], {}, false],
    ['with surrounding spaces', ['a'], { authorization: 'Bearer a ' }, false],
    ['of a million characters', ['a'], { authorization: `Bearer ${'a'.repeat(1_000_000)}` }, false],
    ['after a million spaces', ['a'], { authorization: `Bearer ${' '.repeat(1_000_000)}` }, false],
  ])('%s', (_, keys, headers, wanted) => {
    expect(isAllowed(keys, headers)).toBe(wanted)
  })

  it('is hashed to a fixed length and compared with all keys, so timing reveals nothing', () => {
    const compared: number[] = []
    const check = createKeyCheck(['key-0', 'key-1', 'key-2'], (a, b) => {
      compared.push(a.byteLength)
      return timingSafeEqual(a, b)
    })
    for (const guess of ['key-0', 'key-2', 'key-', 'key-00', 'different']) {
      compared.length = 0
      check({ headers: { authorization: `Bearer ${guess}` } } as IncomingMessage)
      expect(compared).toEqual([32, 32, 32])
    }
  })
})

describe('isLoopback', () => {
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
