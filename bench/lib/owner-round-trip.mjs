// How long a relay waits for the owner's answer: one question after the other, each on an idle owner, over the real socket.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

const WARM_UP = 5_000
const NOBODY = new Set()

/** {enter, prefill, decode}: µs, medians and 99th percentiles. */
export async function ownerRoundTrip(dist, { policy, questions }) {
  const load = file => import(pathToFileURL(join(dist, file)).href)
  const { RelayLink } = await load('gateway/processes/relay-link.js')
  const { remotePlacing } = await load('gateway/processes/remote-placing.js')
  const { RemoteAdmission } = await load('gateway/processes/remote-admission.js')
  const { eldrObject, makeCounts } = await import('../../test/fake-worker/counts.mjs')
  const folder = mkdtempSync(join(tmpdir(), 'eldr-owner-'))
  const path = join(folder, 'desk')
  const owner = spawn(process.execPath, [fileURLToPath(new URL('owner-process.mjs', import.meta.url)), dist, path, policy], { stdio: ['pipe', 'pipe', 'inherit'] }) // prettier-ignore
  try {
    await once(owner.stdout, 'data')
    const nothing = () => {}
    const link = new RelayLink({
      path,
      relay: 1,
      lost: nothing,
      room: nothing,
      logLevel: nothing,
      forgotten: nothing,
      report: async () => ({}),
    })
    const admission = new RemoteAdmission(link, { maxConcurrentRequests: 4096, queueSize: 1024, queueTimeoutMs: 1e4 })
    const placing = remotePlacing(link, admission)
    await link.open()
    const shape = { layers: 48, experts: 128, topK: 8, tokens: 1024 }
    const counts = Buffer.from(JSON.stringify(eldrObject(shape, makeCounts(shape, 1))))
    const stop = { onStop: () => nothing }
    const asks = {
      async enter() {
        await admission.enter(stop)
        admission.leave()
      },
      async prefill() {
        const dispatch = await placing.toPrefill(7, 1024, NOBODY)
        dispatch.succeeded()
      },
      async decode() {
        const place = await placing.toDecode('request', { counts, promptTokens: 1024 }, 1024, NOBODY)
        place.dispatch.succeeded()
      },
    }
    const measured = {}
    for (const [name, ask] of Object.entries(asks)) {
      const times = new Float64Array(questions)
      for (let n = -WARM_UP; n < questions; n++) {
        const fromMs = performance.now()
        await ask()
        if (n >= 0) times[n] = 1e3 * (performance.now() - fromMs)
        // Frames of the end go before the next question comes, as they do between requests.
        await new Promise(setImmediate)
      }
      times.sort()
      measured[name] = { p50: times[questions >> 1], p99: times[Math.floor(0.99 * questions)] }
    }
    link.close()
    return measured
  } finally {
    owner.kill()
    rmSync(folder, { recursive: true, force: true })
  }
}
