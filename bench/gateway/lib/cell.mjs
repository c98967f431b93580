// The cells of a row. Each router is a process of its own in front of the workers, started and warmed once; rounds go round the routers,
// which idle meanwhile. The workers are asked whether all went as it should.
import { setTimeout as sleep } from 'node:timers/promises'
import { freePort, healthy, load, ROUTER_CORE, start, startWorker } from './processes.mjs'

/** V8 goes on compiling a gateway for more than 10,000 requests, in which its cost falls to a quarter; a router in Rust is warm at once. */
const WARM_UP = {
  streams: 64,
  tokens: 16,
  warmUpMs: 200,
  warmUpRequests: 15_000,
  mostWarmUpMs: 20_000,
  countMs: 1,
}

const LOOK_MS = 20
const MOST_LOOKS = 200

/** Two prefill and two decode workers for a row, warm. */
export async function startWorkers(row, { nice }) {
  const counts = role => (role === 'prefill' && row.counts ? ['--counts', row.counts] : [])
  const all = await Promise.all(
    ['prefill', 'prefill', 'decode', 'decode'].map(role =>
      startWorker(['--role', role, ...counts(role)], nice),
    ),
  )
  const urls = all.map(({ url }) => url)
  const workers = {
    prefill: urls.slice(0, 2),
    decode: urls.slice(2),
    pids: all.map(({ pid }) => pid),
    /** Warm-ups have no gap, or they would never end. */
    pace: gapMs =>
      Promise.all(
        urls.map(url => fetch(`${url}/fake/pace`, { method: 'POST', body: JSON.stringify({ gapMs }) })),
      ),
    stop: () => Promise.all(all.map(({ stop }) => stop())),
  }
  const { prefill, decode } = workers
  await load({ ...row.plan, ...WARM_UP, direct: { prefill, decode } }, nice)
  return workers
}

/** The client that goes to the workers itself, in both legs or, for routers of one hop, in the second alone. */
export function measureDirect(row, workers, { hops, nice, ...times }) {
  const { prefill, decode, pids } = workers
  return load(
    { ...row.plan, ...times, direct: hops === 1 ? { decode } : { prefill, decode }, workers: pids },
    nice,
  )
}

/** {measure, stop} of a router that is warm; an Error when it does not start. */
export async function startRouter(row, router, workers, { nice, artifact }) {
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const { prefill, decode, pids } = workers
  const [command, args] = await router.command({ port, prefill, decode, artifact })
  const running = start(command, args, { cores: router.cores ?? ROUTER_CORE, nice })
  const decides = row.counts !== undefined && router.decides
  try {
    await healthy(running, `${url}/health`)
    await workers.pace(0)
    const { warmedBy } = await load({ ...row.plan, ...WARM_UP, url }, nice)
    const warmth = warmedBy < WARM_UP.warmUpRequests ? [`warmed by ${warmedBy} requests only`] : []
    return {
      /** {…what the client measured, notes} */
      async measure(times) {
        const look = async () => ({
          ...(await settled(workers)),
          byCounts: decides ? await decidedByCounts(url) : 0,
        })
        const before = await look()
        const measured = await load({ ...row.plan, ...times, url, router: running.pid, workers: pids }, nice)
        const after = await look()
        return {
          ...measured,
          notes: [
            ...warmth,
            ...complaints(measured, name => after[name] - before[name], { ...router, decides }),
          ],
        }
      },
      stop: running.stop,
    }
  } catch (error) {
    await running.stop()
    throw error
  }
}

/** Counters of the decode workers, once nothing runs: a proxy may still be at work for clients that have left. */
async function settled({ prefill, decode }) {
  for (let n = 0; n < MOST_LOOKS && (await counters([...prefill, ...decode])).active > 0; n++)
    await sleep(LOOK_MS)
  return counters(decode)
}

/** Sums over workers. @param {readonly string[]} urls */
async function counters(urls) {
  const all = await Promise.all(urls.map(async url => (await fetch(`${url}/fake/counters`)).json()))
  return Object.fromEntries(
    Object.keys(all[0]).map(name => [name, all.reduce((sum, one) => sum + one[name], 0)]),
  )
}

function complaints({ errors, firstError, requests }, grown, { hops, decides }) {
  const notes = []
  if (errors > 0) notes.push(`${errors} errors beside ${requests} answers, the first: ${firstError}`)
  if (hops !== 1 && grown('noKv') > 0)
    notes.push(`${grown('noKv')} of ${grown('decode')} decodes had no hand-off`)
  if (grown('eldrAtDecode') > 0) notes.push('counts were forwarded to decode workers')
  if (decides && grown('byCounts') < grown('decode'))
    notes.push(`counts decided ${grown('byCounts')} of ${grown('decode')} requests`)
  return notes
}

/** Decisions that the policy took by counts so far: its reasons are labels of the gateway's metrics. */
async function decidedByCounts(url) {
  const text = await fetch(`${url}/metrics`).then(
    answer => answer.text(),
    () => '',
  )
  return [...text.matchAll(/_decisions_total\{[^}]*reason="band_\w+"[^}]*\} (\d+)/g)].reduce(
    (sum, [, count]) => sum + Number(count),
    0,
  )
}
