import { describe, expect, it } from 'vitest'
import { ChangeGate } from './change-gate.ts'

describe('changes', () => {
  it('that are running end before the state is handed over; later ones are refused until it fails', async () => {
    const gate = new ChangeGate()
    let finish = () => {}
    const running = gate.run(() => new Promise<string>(resolve => (finish = () => resolve('done'))))
    let isFrozen = false
    const frozen = gate.freeze().then(() => (isFrozen = true))
    await expect(gate.run(() => 'late')).rejects.toMatchObject({ code: 'ELDR_REPLACING' })
    expect(isFrozen).toBe(false)
    finish()
    expect([await running, await frozen]).toEqual(['done', true])
    gate.thaw()
    expect(await gate.run(() => 'again')).toBe('again')
  })

  it('that fail do not hold a replacement up', async () => {
    const gate = new ChangeGate()
    await expect(gate.run(() => Promise.reject(new Error('no')))).rejects.toThrow('no')
    await gate.freeze()
  })
})
