import { Writable } from 'node:stream'
import { describe, expect, it, vi } from 'vitest'
import { createLog, RateLimitedLog } from './log.ts'

/** A stream and the lines written to it. */
function output(isTTY: boolean): { out: typeof process.stderr; lines: () => string[] } {
  let text = ''
  const out = Object.assign(
    new Writable({ write: (chunk: Buffer, _, done) => void ((text += chunk.toString()), done()) }),
    { isTTY },
  )
  return { out: out as unknown as typeof process.stderr, lines: () => text.split('\n').slice(0, -1) }
}

describe('createLog', () => {
  it('writes one JSON object per line if the output is not a terminal', () => {
    const { out, lines } = output(false)
    createLog({ logLevel: 'info', logFormat: 'auto' }, out).warn({ worker: 'a' }, 'worker does not respond')
    expect(lines().map(line => JSON.parse(line) as object)).toEqual([
      {
        level: 40,
        time: expect.stringMatching(/^\d{4}-/) as string,
        worker: 'a',
        msg: 'worker does not respond',
      },
    ])
  })

  it('writes the time of each line in ISO 8601', () => {
    vi.useFakeTimers({ toFake: ['Date'] })
    try {
      const { out, lines } = output(false)
      const log = createLog({ logLevel: 'info', logFormat: 'json' }, out)
      const times = ['2026-01-02T03:04:05.006Z', '2026-01-02T03:04:05.999Z', '2026-01-02T03:04:06.000Z']
      for (const time of times) {
        vi.setSystemTime(new Date(time))
        log.info('x')
      }
      expect(lines().map(line => (JSON.parse(line) as { time: string }).time)).toEqual(times)
    } finally {
      vi.useRealTimers()
    }
  })

  it('writes readable lines on a terminal or with logFormat pretty', () => {
    for (const [logFormat, isTTY] of [
      ['auto', true],
      ['pretty', false],
    ] as const) {
      const { out, lines } = output(isTTY)
      const log = createLog({ logLevel: 'debug', logFormat }, out)
      log.info({ worker: 'a', times: 2, inner: { b: 1 } }, 'ready')
      log.debug('alone')
      expect(lines()).toEqual([
        expect.stringMatching(/^\d\d:\d\d:\d\d info  ready {2}worker=a times=2 inner=\{"b":1\}$/),
        expect.stringMatching(/debug alone$/),
      ])
    }
  })

  it('escapes control characters in readable lines', () => {
    const { out, lines } = output(true)
    createLog({ logLevel: 'info', logFormat: 'pretty' }, out).info(
      { text: 'a\n19:00:00 info  request\u001b[2J\u2028b' },
      'x\r\ny',
    )
    expect(lines()).toEqual([
      expect.stringMatching(
        /info {2}x\\u000d\\u000ay {2}text=a\\u000a19:00:00 info {2}request\\u001b\[2J\\u2028b$/,
      ),
    ])
  })

  it('logs nothing below its level, and nothing at all at level silent', () => {
    const { out, lines } = output(false)
    createLog({ logLevel: 'warn', logFormat: 'json' }, out).info('no')
    createLog({ logLevel: 'silent', logFormat: 'json' }, out).fatal('no')
    expect(lines()).toEqual([])
  })

  it('does not log text that failed to parse, which may be part of a prompt', () => {
    const { out, lines } = output(false)
    const log = createLog({ logLevel: 'debug', logFormat: 'json' }, out)
    try {
      JSON.parse('{"prompt": private words')
    } catch (err) {
      log.error({ err }, 'internal error')
    }
    log.error({ err: new Error('own message', { cause: new Error('private words') }) }, 'internal error')
    log.error({ err: 'private words' }, 'internal error')
    expect(lines().join('\n')).not.toContain('private')
    expect(JSON.parse(lines()[0]!)).toMatchObject({
      err: { type: 'SyntaxError', stack: expect.stringMatching(/^\s+at /) as string },
    })
    expect(JSON.parse(lines()[1]!)).toMatchObject({ err: { type: 'Error', message: 'own message' } })
  })
})

describe('RateLimitedLog', () => {
  it('logs once per interval and key, with the number of occurrences', () => {
    const rateLimitedLog = new RateLimitedLog(1_000)
    const logged: [string, number][] = []
    const say = (key: string, nowMs: number) =>
      rateLimitedLog.say(key, nowMs, times => logged.push([key, times]))
    for (const nowMs of [0, 1, 999]) say('a', nowMs)
    say('b', 999)
    say('a', 1_000)
    say('a', 1_500)
    say('a', 2_000)
    expect(logged).toEqual([
      ['a', 1],
      ['b', 1],
      ['a', 3],
      ['a', 2],
    ])
  })
})
