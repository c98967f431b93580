// Section 5: scoring one signature against all centroids, as the router does for every request.
import { Worker } from 'node:worker_threads'
import { times, us } from '../lib/table.mjs'

const WIDTH = 3072 // 24 kept layers × 128 experts
const WAYS = {
  eldr: 'ELDR kernel, copy of x included',
  fourRows: 'four rows at a time',
  fourAccumulators: 'four accumulators',
  flatLoop: 'flat loop',
}

export async function scoring({ dist, seed, quick }) {
  const rows = []
  const data = []
  for (const centroids of [16, 64]) {
    const measured = {}
    for (const way of Object.keys(WAYS)) {
      measured[way] = await inWorker({
        dist,
        way,
        centroids,
        width: WIDTH,
        seed,
        samples: quick ? 101 : 1001,
      })
    }
    for (const [way, { time, out }] of Object.entries(measured)) {
      const wrong = out.findIndex((value, r) => Math.abs(value / measured.flatLoop.out[r] - 1) > 1e-4)
      if (wrong >= 0)
        throw new Error(`${way}: row ${wrong} is ${out[wrong]}, not ${measured.flatLoop.out[wrong]}`)
      rows.push([centroids, WAYS[way], us(time), times(time, measured.eldr.time)])
    }
    data.push({
      centroids,
      width: WIDTH,
      us: Object.fromEntries(Object.entries(measured).map(([way, { time }]) => [way, time * 1e3])),
    })
  }
  return {
    title: `Scoring a signature of ${WIDTH.toLocaleString('en')} values`,
    notes: [
      'Time of one call, median over hundreds of samples of at least 0.5 ms; each variant in its own isolate.',
    ],
    tables: [{ head: ['centroids', 'way', 'one call', 'against ELDR'], rows }],
    data,
  }
}

function inWorker(workerData) {
  return new Promise((resolve, reject) => {
    const worker = new Worker(new URL('../lib/scoring-worker.mjs', import.meta.url), { workerData })
    worker.on('message', resolve)
    worker.on('error', reject)
  })
}
