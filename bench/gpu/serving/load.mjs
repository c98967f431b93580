// Runs a load with the load client of the built project and writes its figures and the times of every counted
// request: node load.mjs DIST OUT.json FLAGS, with the flags of `eldr bench` as JSON. `eldr bench --json` has
// the figures alone.
import { writeFileSync } from 'node:fs'
import { pathToFileURL } from 'node:url'
import { join, resolve } from 'node:path'

const [dist, out, given] = process.argv.slice(2)
const from = path => import(pathToFileURL(join(resolve(dist), path)).href)
const { benchPlan } = await from('cli/bench-plan.js')
const { runLoad } = await from('load/run-load.js')
const { figuresOf } = await from('load/figures.js')

const flags = JSON.parse(given)
const { plan, setup } = await benchPlan({ api: 'completions', timeout: 600, seed: 0, ...flags })
const startedAt = Date.now()
const run = await runLoad(plan).finally(() => plan.endpoint.close())

const tokens = one => one.usage?.completionTokens ?? one.events
const counted = run.exchanges
  .filter(one => one.counted && one.failure === undefined)
  .toSorted((a, b) => a.index - b.index)
const column = value => counted.map(one => Math.round(value(one) * 1e4) / 1e4)
const perRequest = {
  index: column(one => one.index),
  sentMs: column(one => one.plannedMs - run.startMs),
  ttftMs: column(one => one.firstMs - one.plannedMs),
  tpotMs: column(one => (tokens(one) > 1 ? (one.lastMs - one.firstMs) / (tokens(one) - 1) : 0)),
  outputTokens: column(tokens),
}
const { url: _, ...about } = setup
writeFileSync(out, JSON.stringify({ startedAt, setup: about, ...figuresOf(run), perRequest }))
