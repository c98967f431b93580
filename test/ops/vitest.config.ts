import { defineConfig } from 'vitest/config'

/** What other people's programs say of the gateway: a folder for each, their tools from scripts/ops-tools.sh. `npm run test:ops` runs them. */
export default defineConfig({
  test: {
    include: ['test/ops/**/*.ops.ts'],
    globalSetup: ['test/build.ts'],
    reporters: process.env['CI'] === undefined ? ['default'] : ['default', './test/plain-summary.ts'],
    testTimeout: 240_000,
    hookTimeout: 90_000,
    fileParallelism: false,
  },
})
