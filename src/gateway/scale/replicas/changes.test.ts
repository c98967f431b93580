import { describe, expect, it } from 'vitest'
import { type Fields, SharedChanges } from './changes.ts'
import { StoreRefusal } from './store-session.ts'

/**
 * A fake store. The two scripts are tested on a real one (test/ops/replicas); this tests what a replica does
 * with the replies.
 */
function start(stored: Record<string, string>, pending: Fields = {}) {
  const state = { stored, writes: 0, full: false }
  const [applied, refused]: [Fields[], string[]] = [[], []]
  const saved: Fields[] = []
  const changes = new SharedChanges({
    key: 'k',
    channel: 'c',
    keptMs: 1_000,
    notice: () => Buffer.of(1),
    refused: why => void refused.push(why),
    apply: async fields => void applied.push(fields),
    pending,
    pendingChanged: waiting => void saved.push(waiting),
    async ask([command, script, , , , , , version, ...fields]) {
      if (command === 'TIME') return [Buffer.from('1'), Buffer.from('0')]
      if (command === 'HGET')
        return state.stored['version'] === undefined ? null : Buffer.from(state.stored['version'])
      if (command === 'PEXPIRE') return 1
      if (command === 'HGETALL') return Object.entries(state.stored).flat().map(Buffer.from)
      if (state.full) throw new StoreRefusal('OOM command not allowed')
      state.writes++
      const put = Object.fromEntries(
        Array.from({ length: fields.length / 2 }, (_, n) => [
          String(fields[2 * n]),
          String(fields[2 * n + 1]),
        ]),
      )
      const isRestore = String(script).includes("call('DEL'")
      state.stored = isRestore
        ? { ...put, version: String(version) }
        : { ...state.stored, ...put, version: String(Number(state.stored['version'] ?? 0) + 1) }
      return Buffer.from(state.stored['version']!)
    },
  })
  const done = async () => {
    for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate)
  }
  return { changes, state, applied, refused, saved, done }
}

describe('shared changes', () => {
  it('that wait for the store are saved, and stored by the next process', async () => {
    const first = start({ version: '5', policy: 'jsq' })
    first.state.full = true
    first.changes.made({ policy: 'union' })
    await first.done()
    expect(first.saved).toEqual([{ policy: 'union' }])
    const second = start({ version: '5', policy: 'jsq' }, first.saved[0])
    second.changes.sync()
    await second.done()
    expect(second.state.stored).toMatchObject({ policy: 'union' })
    expect(second.applied).toEqual([{ policy: 'union' }])
    expect(second.saved).toEqual([{}])
  })

  it('are applied once per version', async () => {
    const { changes, applied, done } = start({ version: '5', policy: 'jsq' })
    changes.sync()
    changes.sync()
    await done()
    changes.sync()
    await changes.renew()
    await done()
    expect(applied).toEqual([{ policy: 'jsq' }])
    expect(changes.version).toBe(5)
  })

  it('from other replicas are applied while the store refuses a local change, which is kept and stored later', async () => {
    const { changes, state, applied, refused, done } = start({ version: '5', policy: 'random', tau: '0.2' })
    state.full = true
    changes.made({ policy: 'jsq' })
    await done()
    expect(applied).toEqual([{ policy: 'jsq', tau: '0.2' }])
    expect([changes.waiting, refused]).toEqual([1, ['OOM command not allowed']])
    state.full = false
    await changes.renew()
    await done()
    expect([changes.waiting, state.stored]).toEqual([0, { version: '6', policy: 'jsq', tau: '0.2' }])
    expect(applied.at(-1)).toEqual({ policy: 'jsq', tau: '0.2' })
  })

  it('are restored to a store that has lost them, and never over newer ones', async () => {
    const { changes, state, done } = start({ version: '5', policy: 'random' })
    changes.sync()
    await done()
    state.stored = {}
    await changes.renew()
    await done()
    expect(state.stored).toEqual({ version: '5', policy: 'random' })
    state.stored = { version: '9', policy: 'jsq' }
    await changes.renew()
    await done()
    expect([state.writes, changes.version, state.stored['policy']]).toEqual([1, 9, 'jsq'])
  })

  it('with a version far ahead of the store’s clock are ignored and overwritten', async () => {
    const { changes, state, applied, done } = start({ version: '5', policy: 'random' })
    changes.sync()
    await done()
    state.stored = { version: '9007199254740991', policy: 'eldr' }
    await changes.renew()
    await done()
    expect([applied, state.stored]).toEqual([[{ policy: 'random' }], { version: '5', policy: 'random' }])
  })

  it('with an invalid version are ignored', async () => {
    const { changes, applied, done } = start({ version: 'x', policy: 'random' })
    changes.sync()
    await done()
    expect([applied, changes.version]).toEqual([[], 0])
  })
})
