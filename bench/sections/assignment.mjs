// Section 4: one balanced assignment with K sinks, with slots in JavaScript, and with slots in SciPy. All
// totals must agree.
import { slotExpanded } from '../lib/hungarian.mjs'
import { median } from '../lib/measure.mjs'
import { costs } from '../lib/prng.mjs'
import { ms, times } from '../lib/table.mjs'

export async function assignment({ eldr, python, seed, quick }) {
  const [points, clusters] = [quick ? 512 : 2048, 16]
  const rows = []
  const data = []
  for (const kind of ['skewed', 'uniform']) {
    const cost = costs(kind, points, clusters, seed)
    const total = cluster => cluster.reduce((sum, c, i) => sum + cost[i * clusters + c], 0)
    const args = ['--points', points, '--clusters', clusters, '--kind', kind, '--seed', seed].map(String)
    const scipy = python.run && (await python.run('assign_scipy.py', args)).result
    const ours = solve(() => eldr.assign(cost, points, clusters), quick ? 3 : 15)
    const slots = solve(() => slotExpanded(cost, points, clusters), quick ? 1 : 3)
    const scipyMs = scipy && scipy.expand_ms + scipy.solve_ms

    const objective = total(ours.answer)
    for (const other of [total(slots.answer), ...(scipy ? [scipy.objective] : [])]) {
      if (Math.abs(other - objective) > 1e-9 * points)
        throw new Error(`${kind}: totals differ, ${objective} and ${other}`)
    }
    rows.push([
      kind,
      ms(ours.time),
      ms(slots.time),
      times(slots.time, ours.time),
      ms(scipyMs),
      times(scipyMs, ours.time),
      objective.toFixed(6),
    ])
    data.push({ kind, points, clusters, objective, oursMs: ours.time, slotsMs: slots.time, scipyMs })
  }
  return {
    title: `One balanced assignment: ${points.toLocaleString('en')} points, ${clusters} clusters`,
    notes: [
      'The same costs for all (bench/lib/prng.mjs, bench/python/prng.py); equal totals are checked. No warm start with the prices of an earlier problem, unlike in K-means. Times include the expansion into slots.',
    ],
    tables: [
      {
        head: ['costs', 'ELDR', 'slots in JavaScript', 'ratio', 'slots in SciPy', 'ratio', 'total cost'],
        rows,
      },
    ],
    data,
  }
}

/** Median after 0.5 s of warm-up: K-means calls the solver often, so compiled code counts. */
function solve(call, repeat) {
  let answer
  for (const start = performance.now(); answer === undefined || performance.now() - start < 500;)
    answer = call()
  const list = Array.from({ length: repeat }, () => {
    const start = performance.now()
    call()
    return performance.now() - start
  })
  return { answer, time: median(list) }
}
