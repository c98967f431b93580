import { defineConfig } from 'vitest/config'

/** The commands of the documents, run page by page: real clusters on this machine, so one at a time. */
export default defineConfig({
  test: {
    include: ['test/docs/**/*.docs.ts'],
    globalSetup: process.env['ELDR_DOCS_NO_BUILD'] === undefined ? ['test/build.ts'] : [],
    testTimeout: 240_000,
    fileParallelism: false,
    retry: process.env['CI'] === undefined ? 0 : 1,
  },
})
