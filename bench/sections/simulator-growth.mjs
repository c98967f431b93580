// Growth of the simulator's time with decode workers and model shape, and of its memory with requests.
import { PER_DECODER_PER_SECOND } from '../lib/simulation.mjs'
import { mb } from '../lib/table.mjs'

const count = value => value.toLocaleString('en')

export async function decoders({ measure, artifactFor, quick }) {
  const rows = []
  const data = []
  for (const decoders of quick ? [8, 16] : [8, 16, 64, 256]) {
    const requests = (quick ? 100 : 300) * decoders
    const runs = {}
    for (const policy of ['jsq', 'band', 'union']) {
      const artifact = await artifactFor(policy, decoders)
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
      `Million tokens per second at ${PER_DECODER_PER_SECOND.toFixed(1)} requests per second and worker, with requests in proportion. Rows are drawn with replacement. Clusters by \`eldr refit\`. A decision reads every worker, a step only its own batch.`,
    ],
    tables: [{ head: ['decode workers', 'requests', 'jsq', 'band', 'union', 'batch under each'], rows }],
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
      `jsq on 16 decode workers, ${count(requests)} requests of 48 decode steps with 8 random experts per layer, at a batch of about 35. A step of a request is layers × ⌈experts/32⌉ words of 32 bits; if time is linear in words, ns per word is constant.`,
    ],
    tables: [
      {
        head: ['layers × experts', 'words per step', 'M tokens/s', 'ns per token', 'ns per word', 'batch'],
        rows,
      },
    ],
    data,
  }
}

export async function requests({ measure, memory, artifactFor, quick }) {
  const rows = []
  const data = []
  for (const policy of ['jsq', 'union']) {
    const artifact = await artifactFor(policy, 16)
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
      "16 decode workers as in the first table. Memory is measured in a separate run when 95 % of the requests have arrived, after a garbage collection: live objects and arrays (including the trace), resident and peak memory, and resident memory with V8's semi-space limited to 1 MB.",
    ],
    tables: [
      {
        head: [
          'policy',
          'requests',
          'µs per request',
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
