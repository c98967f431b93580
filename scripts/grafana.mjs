// Writes deploy/grafana/eldr.json from scripts/grafana/. With --check it only fails if the file is stale.
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { dashboard } from './grafana/dashboard.mjs'

const file = new URL('../deploy/grafana/eldr.json', import.meta.url)
// One line per panel: indentation would double its size.
const { panels, ...rest } = dashboard()
const lines = panels.map(panel => JSON.stringify(panel)).join(',\n')
const text = `${JSON.stringify(rest).slice(0, -1)},"panels":[\n${lines}\n]}\n`

if (!process.argv.includes('--check')) writeFileSync(file, text)
else if (!existsSync(file) || readFileSync(file, 'utf8') !== text) {
  console.error('deploy/grafana/eldr.json is stale: run `node scripts/grafana.mjs`')
  process.exitCode = 1
}
