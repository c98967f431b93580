import { availableParallelism } from 'node:os'
import { configDefaults, defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['src/**/*.test.ts', 'test/**/*.test.ts'],
    exclude: [...configDefaults.exclude, 'test/processes/**'],
    globalSetup: ['test/build.ts'],
    reporters: process.env['CI'] === undefined ? ['default'] : ['default', './test/plain-summary.ts'],
    // Real processes and sockets on a machine that others share: on CI a test may stumble once. The reporter names those that did.
    retry: process.env['CI'] === undefined ? 0 : 1,
    // Also on two cores: half of the time goes into waiting for processes and sockets.
    maxWorkers: Math.max(2, availableParallelism() - 1),
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
})
