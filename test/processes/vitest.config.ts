import { configDefaults, defineConfig } from 'vitest/config'
import base from '../../vitest.config.ts'

/** What befalls several processes, and the suites of the gateway that look at it from outside, with two relays and an owner in its place. */
const SUITES = [
  'admin-access',
  'admin-look',
  'admin-metrics',
  'continue',
  'dashboard',
  'debug-headers',
  'fault-matrix',
  'framing',
  'official-clients',
  'security',
  'serve',
  'slow-clients',
  'tracing',
  'worker-answers',
]

export default defineConfig({
  test: {
    ...base.test,
    include: ['test/processes/*.test.ts', ...SUITES.map(name => `test/gateway/${name}.test.ts`)],
    exclude: configDefaults.exclude,
    env: { ELDR_TEST_PROCESSES: '2' },
    // Most of them wait more than they compute.
    maxWorkers: 2,
    // Of those that run at once each has a gateway of four processes.
    maxConcurrency: 3,
  },
})
