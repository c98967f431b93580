import { defineConfig } from 'vitest/config'

/**
 * A real model in real clusters: outputs do not depend on the policy. Takes minutes, so apart from the unit
 * tests.
 */
export default defineConfig({
  test: {
    include: ['test/identity/**/*.identity.ts', 'test/worker/gateway.test.ts'],
    env: { ELDR_TEST_BACK_END: 'tiny' },
    globalSetup: ['test/build.ts'],
    testTimeout: 900_000,
    hookTimeout: 120_000,
    fileParallelism: false,
  },
})
