import { IncomingMessage, ServerResponse } from 'node:http'
import { Socket } from 'node:net'
import { describe, expect, it } from 'vitest'
import { Exchange } from './exchange.ts'
import type { UpstreamFailure } from '../upstream/upstreams.ts'

function exchange(ms = 60_000): Exchange {
  const request = new IncomingMessage(new Socket())
  const made = new Exchange('id', request, new ServerResponse(request), { ms, reason: 'deadline' })
  // Ends its timer.
  made.onStop(() => made.response.emit('close'))
  return made
}

describe('an exchange', () => {
  it('stops once, for the first reason, and tells everybody', () => {
    const stopped = exchange()
    const heard: UpstreamFailure[] = []
    stopped.onStop(reason => heard.push(reason))
    const unhook = stopped.onStop(() => expect.unreachable())
    unhook()
    stopped.stop('shutdown')
    stopped.stop('client_gone')
    expect(heard).toMatchObject([{ kind: 'aborted', message: 'shutdown', cause: { code: 'ELDR_DRAINING' } }])
    expect([stopped.stopped, stopped.headers['connection']]).toEqual(['shutdown', 'close'])
  })

  it('tells those who ask later, but not before they have the way to take it back', async () => {
    const stopped = exchange()
    stopped.stop('client_gone')
    let heard = 0
    stopped.onStop(() => heard++)
    expect(heard).toBe(0)
    await Promise.resolve()
    expect([heard, stopped.refusal]).toEqual([1, undefined])
  })

  it('pauses for a time, or until it stops, however late that is', async () => {
    const stopped = exchange()
    await stopped.pause(1)
    expect(stopped.stopped).toBeUndefined()
    const pause = stopped.pause(3_600_000)
    stopped.stop('part_failed')
    await pause
    await stopped.pause(3_600_000)
    expect(stopped.refusal).toBeUndefined()
  })

  it('stops when its time is up', async () => {
    const late = exchange(1)
    await new Promise(resolve => late.onStop(resolve))
    expect([late.stopped, late.refusal?.code]).toEqual(['deadline', 'ELDR_DEADLINE'])
  })

  it('answers once', () => {
    const answered = exchange()
    answered.answer(200, { 'content-type': 'text/plain' }, 'one')
    answered.answer(500, {}, 'two')
    expect([answered.response.statusCode, answered.response.headersSent]).toEqual([200, true])
    answered.stop('client_gone')
  })
})
