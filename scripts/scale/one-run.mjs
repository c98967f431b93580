// Runs one simulation and measures its CPU time and memory: {study, job} as JSON in, figures as JSON out.
// Used by runs.mjs.
import { existsSync, readFileSync } from 'node:fs'
import { prepare } from '../../dist/sim/study.js'

const { study, job } = JSON.parse(process.argv[2])
const run = await prepare(study)
const [from, cpuFrom] = [performance.now(), process.cpuUsage()]
const result = await run(job)
const { user, system } = process.cpuUsage(cpuFrom)
// Peak memory of this process; resourceUsage may report the parent's. Linux only.
const status = existsSync('/proc/self/status') ? readFileSync('/proc/self/status', 'utf8') : ''
const figures = {
  p50: result.tpotMs.p50,
  p99: result.tpotMs.p99,
  batch: result.batch,
  experts: result.activeExperts,
  inflight: result.inflight,
  wallSeconds: (performance.now() - from) / 1000,
  cpuSeconds: (user + system) / 1e6,
  peakBytes: Number(/^VmHWM:\s+(\d+) kB/m.exec(status)?.[1] ?? NaN) * 1024,
}
console.log(JSON.stringify(figures))
