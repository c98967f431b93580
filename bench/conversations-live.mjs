// Multi-turn conversations against the embedded cluster: one prefill and four decode workers as processes
// that replay experts, a gateway that does not follow conversations, keeps them, or skips their prefill, and
// `eldr bench --turns`. The network of the profile is slowed to 2 GB/s, where it matters.
//
//   node bench/conversations-live.mjs [--requests 300] [--rate 12] [--out FILE]
//
// --out writes JSON: docs/evidence/results/conversations-live.json. Needs `npm run build`. Two minutes.
import { execFile, spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { parseArgs, promisify } from 'node:util'
import { readSamples } from '../dist/cluster/metrics-text.js'
import { CONVERSATION_MODES } from '../dist/sim/conversation-study.js'

const { values } = parseArgs({
  options: {
    requests: { type: 'string', default: '300' },
    rate: { type: 'string', default: '12' },
    out: { type: 'string' },
  },
})
const PROFILE = 'h200-qwen3-30b-a3b'
const MODES = {
  off: {},
  keep: { enabled: true },
  skip: { enabled: true, skipPrefillBelowTokens: 512 },
}
const LOAD = `--api chat --turns 5 --think-time 2 --prompt-tokens 1024 --output-tokens 96 --rate ${values.rate} --requests ${values.requests} --warmup-requests 60`
const eldr = new URL('../dist/cli/main.js', import.meta.url).pathname
const folder = mkdtempSync(join(tmpdir(), 'eldr-conversations-'))
const children = []
const runs = []
const at = new Date().toISOString()
try {
  const profile = JSON.parse(readFileSync(new URL(`../profiles/${PROFILE}.json`, import.meta.url), 'utf8'))
  profile.kv.gigabytesPerSecond = 2
  const slow = join(folder, 'slow.json')
  writeFileSync(slow, JSON.stringify(profile))
  for (const mode of CONVERSATION_MODES) {
    // New workers for each mode, so that all begin with empty caches.
    const flags = ['--profile', slow, '--port', '0', '--json-ready']
    const prefill = await started('worker', '--role', 'prefill', ...flags)
    const decodes = []
    for (let n = 0; n < 4; n++) decodes.push(await started('worker', '--role', 'decode', ...flags))
    const config = join(folder, `${mode}.json`)
    writeFileSync(
      config,
      JSON.stringify({
        workers: { prefill: [prefill], decode: decodes },
        routing: { profile: slow },
        conversations: MODES[mode],
      }),
    )
    const url = await started('serve', '--config', config, '--port', '0')
    await ready(url, 5)
    const { stdout } = await promisify(execFile)(
      process.execPath,
      [eldr, 'bench', '--url', url, ...LOAD.split(' '), '--json', '--quiet'],
      { maxBuffer: 1 << 26 },
    )
    const { requests, ttftMs, tpotMs } = JSON.parse(stdout)
    const turns = await samples(url, 'eldr_conversation_turns_total', 'outcome')
    const byLeg = await samples(url, 'eldr_worker_requests_total', 'leg')
    const run = {
      mode,
      counted: requests.counted,
      failed: requests.failed,
      ttftMs: { p50: ttftMs.p50, p99: ttftMs.p99 },
      tpotMs: { p50: tpotMs.p50, p99: tpotMs.p99 },
      turns,
      prefills: byLeg.prefill,
    }
    runs.push(run)
    process.stdout.write(`${JSON.stringify(run)}\n`)
    stop()
  }
} finally {
  stop()
  rmSync(folder, { recursive: true })
}
const short = (_, value) => (typeof value === 'number' ? Number(value.toPrecision(5)) : value)
const result = {
  at,
  profile: PROFILE,
  gigabytesPerSecond: 2,
  load: LOAD,
  runs,
}
if (values.out) writeFileSync(values.out, `${JSON.stringify(result, short)}\n`)

/** Starts a process and returns its URL. */
async function started(...args) {
  const child = spawn(process.execPath, [eldr, ...args], { stdio: ['ignore', 'pipe', 'pipe'] })
  children.push(child)
  return new Promise((resolve, reject) => {
    for (const stream of [child.stdout, child.stderr])
      createInterface({ input: stream }).on('line', line => {
        // A worker's ready line is JSON; the gateway's log names its workers as well.
        const found = /(?:listening on |^\{"ready":.*"url":")(http:\/\/[\d.]+:\d+)/.exec(line)
        if (found !== null) resolve(found[1])
      })
    child.once('exit', code => reject(new Error(`eldr ${args[0]} ended with ${code}`)))
  })
}

function stop() {
  for (const child of children.splice(0)) child.kill()
}

async function ready(url, count) {
  for (;;) {
    const text = await (await fetch(`${url}/eldr/workers`)).text()
    if (text.split('"state":"ready"').length > count) return
    await new Promise(resolve => setTimeout(resolve, 50))
  }
}

/** Sums of a metric by one of its labels. */
async function samples(url, name, label) {
  const sums = {}
  for (const { labels, value } of readSamples(await (await fetch(`${url}/metrics`)).text(), new Set([name])))
    sums[labels[label]] = (sums[labels[label]] ?? 0) + value
  return sums
}
