import { availableParallelism } from 'node:os'
import { configDefaults, defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['src/**/*.test.ts', 'test/**/*.test.ts'],
    exclude: [...configDefaults.exclude, 'test/processes/**'],
    globalSetup: ['test/build.ts'],
    reporters: process.env['CI'] === undefined ? ['default'] : ['default', './test/plain-summary.ts'],
    // Three even on two cores: half of the time is spent waiting for processes and sockets.
    maxWorkers: Math.max(3, availableParallelism() - 1),
    // Only ends tests that hang: no verdict depends on time.
    testTimeout: 180_000,
    hookTimeout: 180_000,
  },
})
