// Section 3: growth of time and memory with requests, workers and layers, one at a time.
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { stageMs } from '../lib/eldr.mjs'
import { medianRun } from '../lib/measure.mjs'
import { writeTrace } from '../lib/synth.mjs'
import { mb, ms, us } from '../lib/table.mjs'

const FULL = [
  { by: 'requests', shapes: [1000, 4000, 16_000].map(requests => ({ requests, layers: 48, workers: 16 })) },
  { by: 'workers', shapes: [8, 16, 64].map(workers => ({ requests: 4000, layers: 48, workers })) },
  { by: 'layers', shapes: [16, 48, 94].map(layers => ({ requests: 4000, layers, workers: 16 })) },
]
const QUICK = [
  { by: 'requests', shapes: [500, 1000].map(requests => ({ requests, layers: 16, workers: 16 })) },
  { by: 'workers', shapes: [8, 16].map(workers => ({ requests: 1000, layers: 16, workers })) },
  { by: 'layers', shapes: [8, 16].map(layers => ({ requests: 1000, layers, workers: 16 })) },
]

export async function growth({ eldr, scratch, seed, quick }) {
  const series = quick ? QUICK : FULL
  const rows = []
  const data = []
  const done = new Map() // shapes in two series are run once
  for (const { by, shapes } of series) {
    for (const shape of shapes) {
      const key = JSON.stringify(shape)
      if (!done.has(key)) done.set(key, await fitShape(eldr, scratch, seed, shape))
      const run = done.get(key)
      const layers = stageMs(run, ['layer selection'])
      const clusters = stageMs(run, ['clusters'])
      rows.push([
        by,
        shape.requests.toLocaleString('en'),
        shape.layers,
        shape.workers,
        ms(run.wallMs),
        ms(layers),
        ms(clusters),
        run.result.iterations,
        us(clusters / (shape.requests * shape.workers * run.result.iterations)),
        mb(run.traceBytes),
        mb(run.peakBytes),
      ])
      data.push({ by, ...shape, wallMs: run.wallMs, peakBytes: run.peakBytes, stages: run.result.stages })
    }
  }
  return {
    title: 'Growth with requests, workers and layers',
    notes: [
      '128 experts, 20,000 pairs, synthetic traces without gate scores; one run each, including start. Memory is the peak resident size. Iterations are summed over all four runs of K-means; if clustering is linear in requests × workers × iterations, the next column is constant.',
    ],
    tables: [
      {
        head: [
          'varied',
          'requests',
          'layers',
          'workers',
          'whole fit',
          'layer selection',
          'clustering',
          'iterations',
          'per request, worker and iteration',
          'counts in the trace',
          'peak memory',
        ],
        rows,
      },
    ],
    data,
  }
}

async function fitShape(eldr, scratch, seed, { requests, layers, workers }) {
  const trace = join(scratch, 'growth.safetensors')
  writeTrace(trace, { requests, layers, experts: 128, topK: 8, domains: 4, seed })
  const run = await medianRun(
    1,
    () => eldr.fit(trace, { workers, pairs: 20_000, seed, out: join(scratch, 'out.safetensors') }),
    0,
  )
  rmSync(trace)
  return { ...run, traceBytes: 4 * requests * layers * 128 }
}
