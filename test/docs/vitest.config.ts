import { defineConfig } from 'vitest/config'

/** Runs the commands in the documents. They start real clusters on this machine, so one page at a time. */
export default defineConfig({
  test: {
    include: ['test/docs/**/*.docs.ts'],
    globalSetup: process.env['ELDR_DOCS_NO_BUILD'] === undefined ? ['test/build.ts'] : [],
    testTimeout: 240_000,
    fileParallelism: false,
  },
})
