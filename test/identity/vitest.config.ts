import { defineConfig } from 'vitest/config'

/** The whole proof that outputs do not depend on the policy: apart from the unit tests, which have a smaller one, since it takes minutes. */
export default defineConfig({
  test: { include: ['test/identity/**/*.identity.ts'], testTimeout: 900_000, fileParallelism: false },
})
