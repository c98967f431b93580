import { configDefaults, defineConfig } from 'vitest/config'
import base, { LONG } from '../../vitest.config.ts'

/** Long suites that start their own processes, so ELDR_TEST_PROCESSES is not set. */
export default defineConfig({
  test: { ...base.test, include: LONG, exclude: configDefaults.exclude, maxWorkers: 2 },
})
