// Writes deploy/grafana/eldr.json from scripts/grafana/. With --check it only fails if the file is stale.
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { dashboard } from './grafana/dashboard.mjs'

const file = new URL('../deploy/grafana/eldr.json', import.meta.url)
const text = `${JSON.stringify(dashboard(), null, 2)}\n`

if (!process.argv.includes('--check')) writeFileSync(file, text)
else if (!existsSync(file) || readFileSync(file, 'utf8') !== text) {
  console.error('deploy/grafana/eldr.json is stale: run `node scripts/grafana.mjs`')
  process.exitCode = 1
}
