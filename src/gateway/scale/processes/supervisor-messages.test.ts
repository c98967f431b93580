import { EventEmitter } from 'node:events'
import { describe, expect, it } from 'vitest'
import { Inbox } from './supervisor-messages.ts'

describe('messages of the supervisor', () => {
  it('that arrive together with the start wait for a listener, in their order', async () => {
    const channel = new EventEmitter()
    const inbox = new Inbox(channel)
    // As Node does with messages that it has read at once: no promise runs in between.
    channel.emit('message', { kind: 'start', relay: 1, id: 4 })
    channel.emit('message', { kind: 'died', id: 2 })
    channel.emit('message', { kind: 'died', id: 3 })
    expect(await inbox.start).toMatchObject({ id: 4 })
    const seen: unknown[] = []
    inbox.listen(message => seen.push(message))
    channel.emit('message', { kind: 'drain' })
    expect(seen).toEqual([{ kind: 'died', id: 2 }, { kind: 'died', id: 3 }, { kind: 'drain' }])
  })
})
