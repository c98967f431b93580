// Simulated decode tokens per second of one core, by policy, and compared with a plain JavaScript simulator.
import { deepStrictEqual } from 'node:assert'
import { PER_DECODER_PER_SECOND } from '../lib/simulation.mjs'
import { times } from '../lib/table.mjs'

const DECODERS = 16
/** Target in million tokens per second of one core. */
const TARGET = { jsq: 2, union: 1 }

const WAYS = [
  { name: 'jsq', policy: 'jsq' },
  { name: 'jsq, rows drawn with replacement', policy: 'jsq', rows: 'replacement', target: null },
  { name: 'band', policy: 'band' },
  { name: 'band, signature per request', policy: 'band', fresh: true },
  { name: 'union', policy: 'union' },
  { name: 'union, prediction per request', policy: 'union', fresh: true, target: null },
]

export async function policies({ measure, artifactFor, quick }) {
  const requests = quick ? 2_000 : 20_000
  const rows = []
  const data = []
  let jsq
  for (const { name, policy, rows: drawn = 'passes', fresh = false, target = TARGET[policy] } of WAYS) {
    const artifact = await artifactFor(policy, DECODERS)
    const perSecond = DECODERS * PER_DECODER_PER_SECOND
    const run = await measure(name, {
      policy,
      fresh,
      artifact,
      decoders: DECODERS,
      perSecond,
      requests,
      rows: drawn,
    })
    jsq ??= run
    rows.push([
      name,
      run.mTokens.toFixed(2),
      run.mTokensOfCpu.toFixed(2),
      target ?? '–',
      ((1e3 * run.wallMs) / requests).toFixed(1),
      times(run.wallMs, jsq.wallMs),
      run.batch.toFixed(1),
      run.activeExperts.toFixed(1),
      run.tpotMs.p50.toFixed(2),
    ])
    data.push({ name, policy, fresh, target, ...run })
  }
  return {
    title: 'Simulated tokens per second, by policy',
    notes: [
      `${DECODERS} decode workers, ${requests.toLocaleString('en')} requests of the lab16-task evaluation trace (16 layers × 128 experts, top-8, 48 decode steps each), profile h200-first, Poisson arrivals at ${DECODERS * PER_DECODER_PER_SECOND}/s, one thread. Million decode tokens per second of wall time and of CPU time (all threads); µs per request of 48 tokens. Batch, active experts and TPOT are results of the runs.`,
      'Signatures and predictions are computed once per trace row, as in `eldr simulate`. Rows marked “per request” compute them for each request, as a gateway does. Trace rows are drawn in passes, which takes a search for a free row; the second line shows the time without it.',
    ],
    tables: [
      {
        head: [
          'policy',
          'M tokens/s',
          'by CPU time',
          'target',
          'µs per request',
          'time against jsq',
          'batch',
          'active experts',
          'p50 TPOT, ms',
        ],
        rows,
      },
    ],
    data,
  }
}

const PLAIN = [
  { name: 'ELDR', rows: 'fixed' },
  { name: 'plain, marks in a flat array', way: 'plain', active: 'marks' },
  { name: 'plain, a Set for each layer', way: 'plain', active: 'sets' },
]

export async function plain({ measure, quick }) {
  const requests = quick ? 2_000 : 20_000
  const rows = []
  const data = []
  for (const { name, ...way } of PLAIN) {
    const perSecond = DECODERS * PER_DECODER_PER_SECOND
    const run = await measure(name, { ...way, policy: 'jsq', decoders: DECODERS, perSecond, requests })
    data.push({ name, ...run })
    const [ours] = data
    // Bit for bit: the same arrivals, rows and ties, and times summed in the same order.
    const found = ({ tpotMs, activeExperts, batch }) => ({ tpotMs, activeExperts, batch })
    deepStrictEqual(found(run), found(ours), `${name} made another run than ELDR`)
    const { p50, p99 } = run.tpotMs
    rows.push([
      name,
      run.mTokens.toFixed(2),
      times(run.wallMs, ours.wallMs),
      p50.toFixed(4),
      p99.toFixed(4),
      run.activeExperts.toFixed(4),
      run.batch.toFixed(2),
    ])
  }
  return {
    title: 'Compared with a plain JavaScript simulator',
    notes: [
      `jsq on the same cluster, ${requests.toLocaleString('en')} requests with the same arrivals, rows and ties; the run fails if TPOT quantiles, active experts or batch differ in any bit. Plain: \`bench/lib/plain-simulator.mjs\`, with request objects, a sorted array of events and experts as numbers.`,
    ],
    tables: [
      {
        head: [
          '',
          'M tokens/s',
          'time against ELDR',
          'p50 TPOT, ms',
          'p99 TPOT, ms',
          'active experts',
          'batch',
        ],
        rows,
      },
    ],
    data,
  }
}
