import type { IncomingMessage } from 'node:http'
import { describe, expect, it } from 'vitest'
import { createGuard } from './admin-guard.ts'

const from = (remoteAddress: string, headers: Record<string, string> = {}) =>
  ({
    socket: { remoteAddress },
    headers: { host: '127.0.0.1:8000', ...headers },
  }) as unknown as IncomingMessage
const allows = (guard: (request: IncomingMessage) => void, request: IncomingMessage) => {
  try {
    guard(request)
    return 'allowed'
  } catch (error) {
    return (error as { code: string }).code
  }
}

describe('admin guard without a token', () => {
  const guard = createGuard(undefined)
  const CASES: readonly (readonly [string, Record<string, string>, string])[] = [
    ['127.0.0.1', {}, 'allowed'],
    ['127.0.0.1', { host: 'localhost:8000' }, 'allowed'],
    // Source address of sidecar proxies.
    ['127.0.0.6', { host: 'localhost:8000' }, 'ELDR_FORBIDDEN'],
    ['::1', { host: '[::1]:8000' }, 'allowed'],
    ['::ffff:127.0.0.1', {}, 'allowed'],
    ['10.0.0.1', {}, 'ELDR_FORBIDDEN'],
    ['', {}, 'ELDR_FORBIDDEN'],
    ['::ffff:10.0.0.1', {}, 'ELDR_FORBIDDEN'],
    ['127.0.0.1', { 'x-forwarded-for': '10.0.0.1' }, 'ELDR_FORBIDDEN'],
    ...[
      'forwarded',
      'via',
      'x-real-ip',
      'x-forwarded-host',
      'x-forwarded-proto',
      'cf-connecting-ip',
      'true-client-ip',
      'x-envoy-external-address',
    ].map(name => ['127.0.0.1', { [name]: 'a' }, 'ELDR_FORBIDDEN'] as const),
    // DNS rebinding, and pages from other origins.
    ['127.0.0.1', { host: 'rebound.example' }, 'ELDR_FORBIDDEN'],
    ['127.0.0.1', { host: '127.0.0.1.example' }, 'ELDR_FORBIDDEN'],
    ['127.0.0.1', { host: '' }, 'ELDR_FORBIDDEN'],
    ['127.0.0.1', { origin: 'http://rebound.example' }, 'ELDR_FORBIDDEN'],
    ['127.0.0.1', { origin: 'http://127.0.0.1:9000' }, 'ELDR_FORBIDDEN'],
    ['127.0.0.1', { origin: 'http://127.0.0.1:8000' }, 'allowed'],
  ]
  it.each(CASES)('%s with %j is %s', (address, headers, wanted) => {
    expect(allows(guard, from(address, headers))).toBe(wanted)
  })
})

describe('admin guard with a token', () => {
  const guard = createGuard('sesame')
  it.each([
    ['127.0.0.1', {}, 'ELDR_UNAUTHORIZED'],
    ['10.0.0.1', { authorization: 'Bearer sesame' }, 'allowed'],
    ['10.0.0.1', { authorization: 'Bearer sesam' }, 'ELDR_UNAUTHORIZED'],
    ['10.0.0.1', { authorization: 'Basic sesame' }, 'ELDR_UNAUTHORIZED'],
    [
      '10.0.0.1',
      { authorization: 'Bearer sesame', 'x-forwarded-for': '10.0.0.9', origin: 'https://a.example' },
      'allowed',
    ],
  ])('%s with %j is %s', (address, headers, wanted) => {
    expect(allows(guard, from(address, headers))).toBe(wanted)
  })
})
