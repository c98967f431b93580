// How long a relay waits for the owner: sequential requests to an idle owner over the real socket, compared
// with the same decision in the gateway's own process. The difference is the cost of the round trip.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { eldrObject, makeCounts } from '../../test/fake-worker/counts.mjs'
import { ownerParts, SHAPE } from './owner-parts.mjs'

const WARM_UP = 5_000
const TOKENS = 1024
const NONE_EXCLUDED = new Set()
const nothing = () => {}
const stop = { onStop: () => nothing }

/** Sends the requests of a relay. `counts`: in the format of this decider. */
const asksOf = ({ admission, placement, counts }) => ({
  async enter() {
    await admission.enter(stop)
    return () => admission.leave()
  },
  async prefill() {
    const prefill = await placement.toPrefill(7, TOKENS, NONE_EXCLUDED)
    return () => prefill.end('succeeded')
  },
  async decode() {
    const place = await placement.toDecode(
      'request',
      { counts: counts(), promptTokens: TOKENS },
      TOKENS,
      NONE_EXCLUDED,
    )
    return () => {
      place.end('succeeded')
    }
  },
})

async function timed(ask, questions) {
  const times = new Float64Array(questions)
  for (let n = -WARM_UP; n < questions; n++) {
    const fromMs = performance.now()
    const end = await ask()
    if (n >= 0) times[n] = 1e3 * (performance.now() - fromMs)
    end()
    // Frames of the end are sent before the next request, as in a gateway.
    await new Promise(setImmediate)
  }
  times.sort()
  return { p50: times[questions >> 1], p99: times[Math.floor(0.99 * questions)] }
}

/** {enter, prefill, decode}: µs, medians and 99th percentiles, through the owner and local. */
export async function ownerRoundTrip(dist, { policy, questions }) {
  const load = file => import(pathToFileURL(join(dist, file)).href)
  const { RelayLink } = await load('gateway/scale/processes/relay-link.js')
  const { remotePlacementClient } = await load('gateway/scale/processes/remote-placement-client.js')
  const { RemoteAdmission } = await load('gateway/scale/processes/remote-admission.js')
  const { countsIn } = await load('gateway/engines/handoff-counts.js')
  const folder = mkdtempSync(join(tmpdir(), 'eldr-owner-'))
  const path = join(folder, 'desk')
  const owner = spawn(
    process.execPath,
    [fileURLToPath(new URL('owner-process.mjs', import.meta.url)), dist, path, policy],
    { stdio: ['pipe', 'pipe', 'inherit'] },
  )
  try {
    await once(owner.stdout, 'data')
    const link = new RelayLink({
      path,
      relay: 1,
      lost: nothing,
      room: nothing,
      logLevel: nothing,
      forgotten: nothing,
      report: async () => ({}),
    })
    const admission = new RemoteAdmission(link, {
      maxConcurrentRequests: 4096,
      queueSize: 1024,
      queueTimeoutMs: 1e4,
    })
    await link.open()
    const shape = { ...SHAPE, tokens: TOKENS }
    const raw = Buffer.from(JSON.stringify(eldrObject(shape, makeCounts(shape, 1))))
    const asked = asksOf({ admission, placement: remotePlacementClient(link, admission), counts: () => raw })
    const here = asksOf({ ...(await ownerParts(dist, policy)), counts: () => countsIn(raw) })
    const measured = {}
    for (const name in asked)
      measured[name] = {
        asked: await timed(asked[name], questions),
        here: await timed(here[name], questions),
      }
    link.close()
    return measured
  } finally {
    owner.kill()
    rmSync(folder, { recursive: true, force: true })
  }
}
