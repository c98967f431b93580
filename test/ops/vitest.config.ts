import { defineConfig } from 'vitest/config'

/** Tools that other people wrote and that need more than Node: apart from the unit tests. `npm run test:ops` gets them. */
export default defineConfig({
  test: {
    include: ['test/ops/**/*.ops.ts'],
    globalSetup: ['test/build.ts'],
    testTimeout: 240_000,
    hookTimeout: 60_000,
    fileParallelism: false,
  },
})
