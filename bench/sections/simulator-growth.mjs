// How the simulator's time grows with decode workers, with the shape of the model, and its memory with the number of requests.
import { PER_DECODER_PER_SECOND } from '../lib/simulation.mjs'
import { mb } from '../lib/table.mjs'

const count = value => value.toLocaleString('en')

export async function decoders({ measure, artifactFor, quick }) {
  const rows = []
  const data = []
  for (const decoders of quick ? [8, 16] : [8, 16, 64, 256]) {
    const requests = (quick ? 100 : 300) * decoders
    const runs = {}
    for (const policy of ['jsq', 'eldr', 'union']) {
      const artifact = policy === 'jsq' ? undefined : await artifactFor(decoders)
      const perSecond = decoders * PER_DECODER_PER_SECOND
      runs[policy] = await measure(`${decoders}D ${policy}`, {
        policy,
        artifact,
        decoders,
        perSecond,
        requests,
        rows: 'replacement',
      })
    }
    const all = Object.values(runs)
    rows.push([
      decoders,
      count(requests),
      ...all.map(({ mTokens }) => mTokens.toFixed(2)),
      all.map(({ batch }) => batch.toFixed(1)).join(' '),
    ])
    data.push({ decoders, requests, ...runs })
  }
  return {
    title: 'Growth with decode workers',
    notes: [
      `Million tokens a second at ${PER_DECODER_PER_SECOND.toFixed(1)} requests a second for each worker, so that batches stay the same, and requests in proportion. Rows are drawn with replacement: a large cluster has more requests in flight than the trace has rows. Clusters by \`eldr refit\`. A decision looks at every worker, a step at its own batch alone.`,
    ],
    tables: [{ head: ['decode workers', 'requests', 'jsq', 'eldr', 'union', 'batch under each'], rows }],
    data,
  }
}

const SHAPES = [
  { layers: 16, experts: 128 },
  { layers: 48, experts: 128 },
  { layers: 48, experts: 256 },
  { layers: 61, experts: 256 },
]

export async function shapes({ measure, quick }) {
  const requests = quick ? 1_000 : 10_000
  const rows = []
  const data = []
  for (const shape of quick ? SHAPES.slice(0, 2) : SHAPES) {
    const { layers, experts } = shape
    const run = await measure(`${layers} × ${experts}`, {
      policy: 'jsq',
      decoders: 16,
      batch: 35,
      shape,
      requests,
      rows: 'replacement',
    })
    const words = layers * Math.ceil(experts / 32)
    const nsPerToken = (1e6 * run.wallMs) / run.tokens
    rows.push([
      `${layers} × ${experts}`,
      words,
      run.mTokens.toFixed(2),
      nsPerToken.toFixed(0),
      (nsPerToken / words).toFixed(2),
      run.batch.toFixed(1),
    ])
    data.push({ ...shape, words, requests, ...run })
  }
  return {
    title: 'Growth with layers and experts',
    notes: [
      `jsq on 16 decode workers, ${count(requests)} requests of 48 decode steps that take 8 experts at random in every layer, at a rate for a batch of about 35. A step of a request is layers × ⌈experts/32⌉ words of 32 bits; where time grows no faster than those, the column of a word does not rise.`,
    ],
    tables: [
      { head: ['layers × experts', 'words a step', 'M tokens/s', 'ns a token', 'ns a word', 'batch'], rows },
    ],
    data,
  }
}

export async function requests({ measure, memory, artifactFor, quick }) {
  const rows = []
  const data = []
  for (const policy of ['jsq', 'union']) {
    const artifact = policy === 'jsq' ? undefined : await artifactFor(16)
    for (const requests of quick ? [2_000] : [2_000, 20_000, 200_000]) {
      const name = `${policy}, ${count(requests)} requests`
      const spec = {
        policy,
        artifact,
        decoders: 16,
        perSecond: 16 * PER_DECODER_PER_SECOND,
        requests,
        rows: 'passes',
      }
      const run = await measure(name, spec)
      const held = await memory(name, spec)
      const tight = await memory(`${name}, small nursery`, spec, ['--max-semi-space-size=1'])
      const usPerRequest = (1e3 * run.wallMs) / requests
      rows.push([
        policy,
        count(requests),
        usPerRequest.toFixed(1),
        ...[held.heapUsed, held.arrayBuffers, held.rss, held.peakBytes, tight.rss].map(mb),
      ])
      data.push({ policy, requests, usPerRequest, ...run, held, tight })
    }
  }
  return {
    title: 'Growth with the number of requests',
    notes: [
      '16 decode workers as in the first table; memory is that of another process, which makes one run. It is read when 95 % of the requests have arrived, after a collection: objects and arrays that are alive, the whole trace among them; what the process takes of the machine, then and at most; and the same where V8 may not let its nursery for new objects grow past 1 MB, which it otherwise does in a long run, whatever is alive.',
    ],
    tables: [
      {
        head: [
          'policy',
          'requests',
          'µs a request',
          'objects',
          'arrays',
          'resident',
          'peak',
          'resident, small nursery',
        ],
        rows,
      },
    ],
    data,
  }
}
