import { Writable } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { createLog, RateLimitedLog } from './log.ts'

/** A place to write to, and what was written. */
function output(isTTY: boolean): { out: typeof process.stderr; lines: () => string[] } {
  let text = ''
  const out = Object.assign(
    new Writable({ write: (chunk: Buffer, _, done) => void ((text += chunk.toString()), done()) }),
    { isTTY },
  )
  return { out: out as unknown as typeof process.stderr, lines: () => text.split('\n').slice(0, -1) }
}

describe('the log', () => {
  it('is an object a line where no person looks', () => {
    const { out, lines } = output(false)
    createLog({ logLevel: 'info', logFormat: 'auto' }, out).warn({ worker: 'a' }, 'worker does not answer')
    expect(lines().map(line => JSON.parse(line) as object)).toEqual([
      {
        level: 40,
        time: expect.stringMatching(/^\d{4}-/) as string,
        worker: 'a',
        msg: 'worker does not answer',
      },
    ])
  })

  it('is a line of words where one does', () => {
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

  it('is one line for eyes too, whatever others have said', () => {
    const { out, lines } = output(true)
    createLog({ logLevel: 'info', logFormat: 'pretty' }, out).info(
      { told: 'a\n19:00:00 info  request\u001b[2J\u2028b' },
      'x\r\ny',
    )
    expect(lines()).toEqual([
      expect.stringMatching(
        /info {2}x\\u000d\\u000ay {2}told=a\\u000a19:00:00 info {2}request\\u001b\[2J\\u2028b$/,
      ),
    ])
  })

  it('says nothing below its level, and nothing at all when it is to be silent', () => {
    const { out, lines } = output(false)
    createLog({ logLevel: 'warn', logFormat: 'json' }, out).info('no')
    createLog({ logLevel: 'silent', logFormat: 'json' }, out).fatal('no')
    expect(lines()).toEqual([])
  })

  it('does not repeat what a parser could not read: that may be part of a prompt', () => {
    const { out, lines } = output(false)
    const log = createLog({ logLevel: 'debug', logFormat: 'json' }, out)
    try {
      JSON.parse('{"prompt": private words')
    } catch (err) {
      log.error({ err }, 'a fault')
    }
    log.error({ err: new Error('said by us', { cause: new Error('private words') }) }, 'a fault')
    log.error({ err: 'private words' }, 'a fault')
    expect(lines().join('\n')).not.toContain('private')
    expect(JSON.parse(lines()[0]!)).toMatchObject({
      err: { type: 'SyntaxError', stack: expect.stringMatching(/^\s+at /) as string },
    })
    expect(JSON.parse(lines()[1]!)).toMatchObject({ err: { type: 'Error', message: 'said by us' } })
  })
})

describe('what happens often', () => {
  it('is said once in a while, with how often it was', () => {
    const rateLimitedLog = new RateLimitedLog(1_000)
    const said: [string, number][] = []
    const say = (key: string, nowMs: number) =>
      rateLimitedLog.say(key, nowMs, times => said.push([key, times]))
    for (const nowMs of [0, 1, 999]) say('a', nowMs)
    say('b', 999)
    say('a', 1_000)
    say('a', 1_500)
    say('a', 2_000)
    expect(said).toEqual([
      ['a', 1],
      ['b', 1],
      ['a', 3],
      ['a', 2],
    ])
  })
})
