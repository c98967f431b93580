/** What promtool says of the files under deploy/prometheus. */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { tool } from '../tools.ts'
import { deployed, readRules, RULE_TESTS } from './expressions.ts'

const promtool = async (...args: string[]) =>
  (await promisify(execFile)(tool('prometheus', 'promtool'), args, { cwd: deployed('prometheus') })).stdout

it('loads all rules', async () => {
  const count = readRules().groups.flatMap(({ rules }) => rules).length
  expect(await promtool('check', 'rules', 'alerts.yml')).toContain(`SUCCESS: ${count} rules found`)
})

it('accepts the example configuration', async () => {
  expect(await promtool('check', 'config', 'prometheus.yml')).toContain('prometheus.yml is valid')
})

it('tests every alert, both inactive and firing', async () => {
  expect((await promtool('test', 'rules', ...RULE_TESTS)).match(/SUCCESS/g)).toHaveLength(RULE_TESTS.length)
})
