import { availableParallelism } from 'node:os'
import { configDefaults, defineConfig } from 'vitest/config'

/** Run by `npm run test:processes`: `npm test` ends within five minutes on two cores. */
export const LONG = [
  'test/calibrate/end-to-end.test.ts',
  'test/gateway/adapt.test.ts',
  'test/gateway/experiment.test.ts',
  'test/gateway/processes.test.ts',
  'test/up/demo.test.ts',
  'test/up/up.test.ts',
  'test/worker/conversations.test.ts',
  'test/worker/faults.test.ts',
  'test/worker/gateway.test.ts',
]

export default defineConfig({
  test: {
    include: ['src/**/*.test.ts', 'test/**/*.test.ts'],
    exclude: [...configDefaults.exclude, 'test/processes/**', ...LONG],
    globalSetup: ['test/build.ts'],
    reporters: process.env['CI'] === undefined ? ['default'] : ['default', './test/plain-summary.ts'],
    // Three even on two cores: half of the time is spent waiting for processes and sockets.
    maxWorkers: Math.max(3, availableParallelism() - 1),
    // Only ends tests that hang: no verdict depends on time.
    testTimeout: 180_000,
    hookTimeout: 180_000,
  },
})
