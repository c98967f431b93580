import { IncomingMessage, ServerResponse } from 'node:http'
import { Socket } from 'node:net'
import { describe, expect, it } from 'vitest'
import { Exchange } from './exchange.ts'
import type { UpstreamFailure } from '../upstream/upstreams.ts'

function exchange(ms = 60_000): Exchange {
  const request = new IncomingMessage(new Socket())
  const made = new Exchange('id', request, new ServerResponse(request), { ms, reason: 'deadline' })
  // Clears its timer.
  made.onStop(() => made.response.emit('close'))
  return made
}

describe('Exchange', () => {
  it('stops once, with the first reason, and notifies all listeners', () => {
    const stopped = exchange()
    const notified: UpstreamFailure[] = []
    stopped.onStop(reason => notified.push(reason))
    const unhook = stopped.onStop(() => expect.unreachable())
    unhook()
    stopped.stop('shutdown')
    stopped.stop('client_gone')
    expect(notified).toMatchObject([
      { kind: 'aborted', message: 'shutdown', cause: { code: 'ELDR_DRAINING' } },
    ])
    expect([stopped.stopped, stopped.headers['connection']]).toEqual(['shutdown', 'close'])
  })

  it('notifies listeners added after the stop asynchronously, so that they can unsubscribe', async () => {
    const stopped = exchange()
    stopped.stop('client_gone')
    let notified = 0
    stopped.onStop(() => notified++)
    expect(notified).toBe(0)
    await Promise.resolve()
    expect([notified, stopped.refusal]).toEqual([1, undefined])
  })

  it('pauses for the given time or until it stops', async () => {
    const stopped = exchange()
    await stopped.pause(1)
    expect(stopped.stopped).toBeUndefined()
    const pause = stopped.pause(3_600_000)
    stopped.stop('part_failed')
    await pause
    await stopped.pause(3_600_000)
    expect(stopped.refusal).toBeUndefined()
  })

  it('stops at its deadline', async () => {
    const late = exchange(1)
    await new Promise(resolve => late.onStop(resolve))
    expect([late.stopped, late.refusal?.code]).toEqual(['deadline', 'ELDR_DEADLINE'])
  })

  it('responds once', () => {
    const answered = exchange()
    answered.answer(200, { 'content-type': 'text/plain' }, 'one')
    answered.answer(500, {}, 'two')
    expect([answered.response.statusCode, answered.response.headersSent]).toEqual([200, true])
    answered.stop('client_gone')
  })
})
