import { defineConfig } from 'vitest/config'

/** A real model in real clusters: that outputs do not depend on the policy, and more that takes minutes. Apart from the unit tests. */
export default defineConfig({
  test: {
    include: ['test/identity/**/*.identity.ts', 'test/worker/gateway.test.ts'],
    env: { ELDR_TEST_BACK_END: 'tiny' },
    globalSetup: ['test/build.ts'],
    testTimeout: 900_000,
    hookTimeout: 120_000,
    fileParallelism: false,
    // A proof that holds at the second try does not hold.
    retry: 0,
  },
})
