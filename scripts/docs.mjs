// Writes the pages under docs/ that are made from the code and from saved results. A test fails when one of them is stale.
import { readFileSync, writeFileSync } from 'node:fs'
import { resultsPage } from '../dist/paper/results-page.js'
import { errorsPage } from '../dist/report/errors-page.js'

const docs = name => new URL(`../docs/${name}`, import.meta.url)
const results = name => JSON.parse(readFileSync(docs(`results/${name}.json`), 'utf8'))

writeFileSync(docs('errors.md'), errorsPage())
writeFileSync(docs('results.md'), resultsPage(results('whole'), results('cut')))
