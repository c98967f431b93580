// Writes the pages under docs/ that are made from the code. A test fails when one of them is stale.
import { writeFileSync } from 'node:fs'
import { errorsPage } from '../dist/report/errors-page.js'

writeFileSync(new URL('../docs/errors.md', import.meta.url), errorsPage())
