import { configDefaults, defineConfig } from 'vitest/config'
import base from '../../vitest.config.ts'

/**
 * Tests of a gateway of several processes, and the gateway's suites that need no access to its internals, run
 * against an owner and two relays.
 */
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
  'resume',
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
    // They wait more than they compute.
    maxWorkers: 2,
    // Each concurrent test has a gateway of four processes.
    maxConcurrency: 3,
  },
})
