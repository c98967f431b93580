import { expect, it } from 'vitest'
import { terminalOn } from '../report/terminal.ts'
import { sweepTables } from './sweep-tables.ts'
import type { SweepRow } from './sweep.ts'

const row = (policy: string, p50: number, keptUp: boolean) =>
  ({
    policy,
    rate: 10,
    tpotP50Ratio: 1,
    live: {
      tpotMs: { p50, p99: 12 },
      ttftMs: { p50: 5 },
      client: { keptUp },
      requests: { failed: 0 },
      errors: [],
    },
    simulated: { tpotMs: { p50: 10, p99: 12 }, ttftMs: { p50: 5 } },
  }) as unknown as SweepRow
const tableOf = (...rows: SweepRow[]) =>
  sweepTables(rows, [], terminalOn(process.stdout, { NO_COLOR: '1', TERM: 'dumb' }))

it('marks gains if requests of the row or of the baseline were sent late', () => {
  const one = tableOf(row('jsq', 10, true), row('eldr', 9, true), row('union', 11.3, false))
  expect(one).toMatch(/eldr .*−10\.0 % {2}/)
  expect(one).toMatch(/union \* .*\+13\.0 % \?/)
  expect(one).toContain('gains marked ? are not valid measurements')
  expect(tableOf(row('jsq', 10, false), row('eldr', 9, true))).toMatch(/eldr .*−10\.0 % \?/)
  expect(tableOf(row('jsq', 10, true), row('eldr', 9, true))).not.toContain('?')
})
