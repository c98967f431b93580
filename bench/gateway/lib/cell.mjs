// The cells of a row. Each router is a process in front of the workers, started and warmed up once; routers
// take turns in each round and idle otherwise. The workers report whether all requests were correct.
import { setTimeout as sleep } from 'node:timers/promises'
import { freePort, healthy, load, ROUTER_CORE, start, startWorker } from './processes.mjs'

/**
 * V8 optimises a gateway for more than 10,000 requests, in which its cost falls to a quarter; a router in
 * Rust needs no warm-up.
 */
const WARM_UP = {
  streams: 64,
  tokens: 16,
  warmUpMs: 200,
  warmUpRequests: 15_000,
  mostWarmUpMs: 20_000,
  countMs: 1,
}

const LOOK_MS = 20
const MAX_LOOKS = 200

/** Two prefill and two decode workers for a row, warm. */
export async function startWorkers(row, { nice }) {
  const counts = role => (role === 'prefill' && row.counts ? ['--counts', row.counts] : [])
  const all = await Promise.all(
    ['prefill', 'prefill', 'decode', 'decode'].map(role =>
      startWorker(['--role', role, '--token-ids', ...counts(role)], nice),
    ),
  )
  const urls = all.map(({ url }) => url)
  const workers = {
    prefill: urls.slice(0, 2),
    decode: urls.slice(2),
    pids: all.map(({ pid }) => pid),
    /** No gap between tokens during warm-up, which would take too long. */
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

/**
 * The client that goes to the workers itself: both legs, or only decode to compare with routers of one hop.
 */
export function measureDirect(row, workers, { hops, nice, ...times }) {
  const { prefill, decode, pids } = workers
  return load(
    { ...row.plan, ...times, direct: hops === 1 ? { decode } : { prefill, decode }, workers: pids },
    nice,
  )
}

/** {measure, stop} of a warm router; an Error if it does not start. */
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

/** Counters of the decode workers when idle: a proxy may still be working for disconnected clients. */
async function settled({ prefill, decode }) {
  for (let n = 0; n < MAX_LOOKS && (await counters([...prefill, ...decode])).active > 0; n++)
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

/** Decisions made with counts so far, from the reasons in the gateway's metrics. */
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
