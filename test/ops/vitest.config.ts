import { defineConfig } from 'vitest/config'

/**
 * What other people's programs say of the gateway and of what operators are given: a folder for each, their tools from scripts/ops-tools.sh.
 * Two at a time, also on two cores: most of them wait more than they compute.
 */
export default defineConfig({
  test: {
    include: ['test/ops/**/*.ops.ts'],
    globalSetup: ['test/build.ts'],
    reporters: process.env['CI'] === undefined ? ['default'] : ['default', './test/plain-summary.ts'],
    // As for the unit tests: the reporter names those that stumbled.
    retry: process.env['CI'] === undefined ? 0 : 1,
    testTimeout: 240_000,
    hookTimeout: 240_000,
    maxWorkers: 2,
  },
})
