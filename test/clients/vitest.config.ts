import { defineConfig } from 'vitest/config'

/**
 * Clients that other people wrote and that need more than Node: apart from the unit tests. `npm run
 * test:clients` gets them.
 */
export default defineConfig({
  test: {
    include: ['test/clients/**/*.client.ts'],
    testTimeout: 240_000,
    hookTimeout: 60_000,
    fileParallelism: false,
  },
})
