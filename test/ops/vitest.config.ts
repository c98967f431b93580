import { defineConfig } from 'vitest/config'

/**
 * The gateway and its deployment files, checked with other projects' tools (from scripts/ops-tools.sh), one
 * folder per tool. Two files at a time, even on two cores: most of them wait more than they compute.
 */
export default defineConfig({
  test: {
    include: ['test/ops/**/*.ops.ts'],
    globalSetup: ['test/build.ts'],
    reporters: process.env['CI'] === undefined ? ['default'] : ['default', './test/plain-summary.ts'],
    testTimeout: 240_000,
    hookTimeout: 240_000,
    maxWorkers: 2,
  },
})
