import { defineConfig } from 'vitest/config'

/** Tests that need a browser: apart from the unit tests, which need Node alone. */
export default defineConfig({
  test: {
    include: ['test/browser/**/*.browser.ts'],
    globalSetup: ['test/build.ts'],
    testTimeout: 60_000,
    fileParallelism: false,
  },
})
