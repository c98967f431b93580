import { defineConfig } from 'vitest/config'
import base from '../../vitest.config.ts'

/** The suites of the gateway that look at it from outside, with two relays and an owner in its place: `npm run test:processes`. */
const SUITES = [
  'admin-access',
  'admin-look',
  'admin-metrics',
  'continue',
  'dashboard',
  'debug-headers',
  'framing',
  'official-clients',
  'security',
  'serve',
  'slow-clients',
  'worker-answers',
]

export default defineConfig({
  test: {
    ...base.test,
    include: SUITES.map(name => `test/gateway/${name}.test.ts`),
    env: { ELDR_TEST_PROCESSES: '2' },
    fileParallelism: false,
  },
})
