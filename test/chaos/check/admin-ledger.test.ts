/** Which values the gateways may show after changes, faults and restarts. */
import { describe, expect, it } from 'vitest'
import { AdminLedger } from './admin-ledger.ts'

const CONFIGURED = { policy: 'jsq', 'workers:d3': 'there' }
const view = (policy: string, workers = 'there') => {
  const one = { policy, 'workers:d3': workers }
  return { gw1: one, gw2: one }
}
const begin = () => {
  const ledger = new AdminLedger(view('jsq'), CONFIGURED)
  const confirm = (gateway: string, value: string, atMs: number, field = 'policy') =>
    ledger.attempt({ gateway, field, value }).made(atMs)
  const kinds = (seen: Parameters<AdminLedger['problems']>[0]) => ledger.problems(seen).map(([what]) => what)
  return { ledger, confirm, kinds }
}

describe('a change', () => {
  it('must be on both gateways, and the last one counts', () => {
    const { confirm, kinds } = begin()
    confirm('gw1', 'union', 1_000)
    confirm('gw2', 'random', 2_000)
    expect(kinds(view('random'))).toEqual([])
    expect(kinds(view('union'))).toEqual(['lost admin change', 'lost admin change'])
    expect(kinds({ ...view('random'), gw2: CONFIGURED })).toEqual(['gateways disagree', 'lost admin change'])
  })

  it('that was never made is found too', () => {
    const { kinds } = begin()
    expect(kinds(view('union'))).toEqual(['lost admin change', 'lost admin change'])
  })

  it('whose response was lost may be there or not', () => {
    const { ledger, kinds } = begin()
    const attempt = ledger.attempt({ gateway: 'gw1', field: 'policy', value: 'union' })
    expect(kinds(view('union'))).toEqual([])
    expect(kinds(view('jsq'))).toEqual([])
    expect(kinds(view('random'))).not.toEqual([])
    attempt.refused()
    expect(kinds(view('union'))).not.toEqual([])
  })

  it('may lose against another gateway’s if the store was away, but not against none', () => {
    const { ledger, confirm, kinds } = begin()
    ledger.storeDisturbed()
    confirm('gw1', 'union', 1_000)
    confirm('gw2', 'random', 2_000)
    expect(kinds(view('union'))).toEqual([])
    expect(kinds(view('random'))).toEqual([])
    expect(kinds(view('jsq'))).toEqual(['lost admin change', 'lost admin change'])
  })

  it('may be lost with its gateway before it reached the store, and not later', () => {
    const { ledger, confirm, kinds } = begin()
    confirm('gw1', 'union', 1_000)
    ledger.gatewayRestarted('gw1', 1_500)
    expect(kinds(view('jsq'))).toEqual([])
    const later = begin()
    later.confirm('gw1', 'union', 1_000)
    later.ledger.gatewayRestarted('gw1', 9_000)
    expect(later.kinds(view('jsq'))).toEqual(['lost admin change', 'lost admin change'])
    later.ledger.storeDisturbed()
    expect(later.kinds(view('jsq'))).toEqual([])
  })

  it('of the workers of one gateway stays until that gateway restarts', () => {
    const { ledger, confirm, kinds } = begin()
    confirm('gw1', 'gone', 1_000, 'workers:d3')
    const seen = { gw1: { ...CONFIGURED, 'workers:d3': 'gone' }, gw2: CONFIGURED }
    expect(kinds(seen)).toEqual([])
    expect(kinds(view('jsq'))).toEqual(['lost admin change'])
    ledger.gatewayRestarted('gw1', 5_000)
    expect(kinds(view('jsq'))).toEqual([])
    expect(kinds(seen)).toEqual(['lost admin change'])
  })

  it('is the starting point of the next quiet point', () => {
    const { ledger, confirm, kinds } = begin()
    confirm('gw1', 'union', 1_000)
    ledger.settle(view('union'))
    expect(kinds(view('union'))).toEqual([])
    expect(kinds(view('jsq'))).toHaveLength(2)
  })
})
