// Multi-turn conversations in the simulator: not followed, kept on the decode worker that has their KV cache,
// and without the remote prefill where that is cheaper; under jsq, eldr and union.
//
//   nice node bench/conversations.mjs [--seeds 5] [--seconds 120] [--out FILE]
//
// --out writes JSON; docs/evidence/results/conversations.json is the source of
// docs/evidence/conversations.md. Needs `npm run build`.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { fit, FIT_DEFAULTS } from '../dist/fit/fit.js'
import { writeArtifact } from '../dist/fit/artifact-write.js'
import { createStages } from '../dist/fit/stages.js'
import { CONVERSATION_MODES, runConversations } from '../dist/sim/conversation-study.js'
import { createStudyLibrary } from '../dist/sim/study-library.js'
import { withTrace } from '../dist/trace/trace.js'

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '120' },
    policies: { type: 'string', default: 'jsq,eldr,union' },
    profile: { type: 'string', default: 'h200-qwen3-30b-a3b' },
    out: { type: 'string' },
  },
})
const data = name => new URL(`../data/lab16-task.${name}.safetensors`, import.meta.url).pathname
const conditions = {
  profile: values.profile,
  topology: '2P8D',
  seconds: Number(values.seconds),
  seeds: Number(values.seeds),
  prefixCacheTokens: 1_000_000,
  spec: {
    turns: 5,
    thinkSeconds: 10,
    firstTokens: [300, 1500],
    messageTokens: [20, 200],
    outputTokens: [100, 300],
    blockTokens: 16,
  },
  options: { maxEntries: 4096, keptMs: 300_000, skipPrefillBelowTokens: 512 },
}
/**
 * Two networks and two rates, where a turn resembles the one before only as requests of a domain do; then
 * turns with the experts of the one before. Real conversations are between the two.
 */
const PARTS = [
  ...[50, 2].flatMap(gigabytesPerSecond =>
    [40, 80].map(rate => ({ gigabytesPerSecond, rate, turnsReplay: 'domain' })),
  ),
  { gigabytesPerSecond: 50, rate: 80, turnsReplay: 'same' },
]
const folder = mkdtempSync(join(tmpdir(), 'eldr-conversations-'))
const rows = []
try {
  const artifact = join(folder, 'artifact')
  const fitted = await withTrace(data('calibration'), trace =>
    fit(trace, { ...FIT_DEFAULTS, workers: 8 }, createStages()),
  )
  await writeArtifact(artifact, fitted.artifact)
  const study = { ...conditions, library: createStudyLibrary(), trace: data('evaluation'), artifact }
  for (const part of PARTS)
    for (const policy of values.policies.split(','))
      for (const mode of CONVERSATION_MODES) {
        const row = { ...part, policy, mode, runs: [] }
        for (let seed = 0; seed < conditions.seeds; seed++)
          row.runs.push(await runConversations(study, { ...row, seed }))
        rows.push(row)
        process.stdout.write(`${lineOf(row)}\n`)
      }
} finally {
  rmSync(folder, { recursive: true })
}
const short = (_, value) => (typeof value === 'number' ? Number(value.toPrecision(5)) : value)
if (values.out) writeFileSync(values.out, `${JSON.stringify({ ...conditions, rows }, short)}\n`)

function lineOf({ gigabytesPerSecond, rate, turnsReplay, policy, mode, runs }) {
  const mean = of => runs.reduce((sum, run) => sum + of(run), 0) / runs.length
  const parts = ['ttftP50Ms', 'ttftP99Ms', 'tpotP50Ms', 'tpotP99Ms', 'batch'].map(
    name => `${name} ${mean(run => run[name]).toFixed(2)}`,
  )
  const turns = ['kept', 'alone', 'moved'].map(name => `${name} ${mean(run => run.turns[name]).toFixed(0)}`)
  const prefilled = `prefilled ${(mean(run => run.turns.prefilledTokens) / 1e6).toFixed(2)} M`
  return [
    `${gigabytesPerSecond} GB/s`,
    `${rate}/s`,
    turnsReplay,
    policy,
    mode,
    ...parts,
    ...turns,
    prefilled,
  ].join('  ')
}
