import { expect, it } from 'vitest'
import { quoted } from './quoted.ts'

it('shows any value on one line of bounded length, including one nested too deep to be written', () => {
  expect(quoted('a\nb')).toBe('"a\\nb"')
  expect(quoted(undefined)).toBe('nothing')
  expect(quoted('x'.repeat(1000))).toHaveLength(81)
  expect(quoted(JSON.parse(`${'['.repeat(100_000)}${']'.repeat(100_000)}`))).toBe(
    'a list too deep or too long to show',
  )
})
