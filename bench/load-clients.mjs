// Compares `eldr bench` with aiperf: both run in turn against a fake server of known pace. Prints p50 of
// TTFT, TPOT and ITL and exits with 1 if they differ by more than 3 %.
//
//   npm run build && bash scripts/client-tools.sh && node bench/load-clients.mjs [--rounds 3] [--json]
//
// aiperf comes from .venv/clients or from the variable AIPERF. Its inter-token latency is TPOT here, its
// inter-chunk latency over all chunks is ITL.
import { execFileSync, spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'

const MAX_DIFFERENCE = 0.03
const [REQUESTS, WARM_UP, CONCURRENCY, PROMPT, OUTPUT] = [160, 16, 8, 64, 64]
const PACE = ['--first-token-ms', '150', '--gap-ms', '20']

const root = fileURLToPath(new URL('..', import.meta.url))
const { values } = parseArgs({
  options: { rounds: { type: 'string', default: '3' }, json: { type: 'boolean', default: false } },
})
const aiperf = process.env['AIPERF'] ?? join(root, '.venv', 'clients', 'bin', 'aiperf')
const folder = mkdtempSync(join(tmpdir(), 'eldr-clients-'))
const server = spawn(
  process.execPath,
  [join(root, 'test/fake-worker/main.mjs'), ...PACE, '--until-stdin-ends'],
  {
    stdio: ['pipe', 'pipe', 'inherit'],
  },
)

/** @param {string} command @param {string[]} args */
const run = (command, args) =>
  execFileSync(command, args, {
    cwd: folder,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
    maxBuffer: 1 << 26,
  })

/** @param {string} url */
function ours(url) {
  const load = [
    '--concurrency',
    CONCURRENCY,
    '--requests',
    REQUESTS,
    '--warmup-requests',
    WARM_UP,
    '--prompt-tokens',
    PROMPT,
    '--output-tokens',
    OUTPUT,
  ]
  const { ttftMs, tpotMs, itlMs, requests } = JSON.parse(
    run(process.execPath, [
      join(root, 'dist/cli/main.js'),
      'bench',
      '--url',
      url,
      '--api',
      'chat',
      ...load.map(String),
      '--json',
      '-q',
    ]),
  )
  if (requests.ok !== REQUESTS) throw new Error(`eldr bench: ${requests.failed} requests failed`)
  return { TTFT: ttftMs.p50, TPOT: tpotMs.p50, ITL: itlMs.p50 }
}

/** @param {string} url @param {number} round */
function theirs(url, round) {
  const load = [
    '--concurrency',
    CONCURRENCY,
    '--request-count',
    REQUESTS,
    '--warmup-request-count',
    WARM_UP,
    '--synthetic-input-tokens-mean',
    PROMPT,
    '--output-tokens-mean',
    OUTPUT,
  ]
  // The path must begin with ./, otherwise it is taken for the name of a model to download.
  const what = [
    '--model',
    'fake',
    '--tokenizer',
    './tokenizer',
    '--url',
    url,
    '--endpoint-type',
    'chat',
    '--streaming',
    '--use-server-token-count',
  ]
  run(aiperf, ['profile', ...what, ...load.map(String), '--ui', 'none', '--artifact-dir', `out-${round}`])
  const report = JSON.parse(readFileSync(join(folder, `out-${round}`, 'profile_export_aiperf.json'), 'utf8'))
  if (report.request_count.avg !== REQUESTS)
    throw new Error(`aiperf: ${report.request_count.avg} of ${REQUESTS} requests ended well`)
  return {
    TTFT: report.time_to_first_token.p50,
    TPOT: report.inter_token_latency.p50,
    ITL: report.inter_chunk_latency.p50,
  }
}

const median = numbers => numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)]

try {
  const url = await new Promise(resolve => server.stdout.once('data', line => resolve(JSON.parse(line).url)))
  run(join(dirname(aiperf), 'python'), [join(root, 'test/clients/tokenizer.py'), join(folder, 'tokenizer')])
  // In turn, so that other load on the machine affects both.
  const rounds = Array.from({ length: Number(values.rounds) }, (_, round) => ({
    eldr: ours(url),
    aiperf: theirs(url, round),
  }))
  const figures = ['TTFT', 'TPOT', 'ITL'].map(name => {
    const [a, b] = [
      median(rounds.map(({ eldr }) => eldr[name])),
      median(rounds.map(round => round.aiperf[name])),
    ]
    return { figure: `${name} p50`, eldrMs: a, aiperfMs: b, ratio: a / b }
  })
  if (values.json) console.log(JSON.stringify({ rounds, figures }, null, 2))
  else
    for (const { figure, eldrMs, aiperfMs, ratio } of figures)
      console.log(
        `${figure.padEnd(9)} eldr bench ${eldrMs.toFixed(3).padStart(9)} ms   aiperf ${aiperfMs.toFixed(3).padStart(9)} ms   ratio ${ratio.toFixed(4)}`,
      )
  process.exitCode = figures.every(({ ratio }) => Math.abs(ratio - 1) <= MAX_DIFFERENCE) ? 0 : 1
} finally {
  server.stdin.end()
  rmSync(folder, { recursive: true, force: true })
}
