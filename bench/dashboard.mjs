// Cost of the dashboard: CPU time of the gateway at 500 decisions per second with no, one and four viewers.
// Workers and viewers run in another process and are not counted. Run after `npm run build`, in a folder with
// an artifact of `eldr up`:
//   node bench/dashboard.mjs [seconds] [decisions per second] [artifact]
import { fork } from 'node:child_process'
import { createServer } from 'node:http'
import { readdirSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const [DECODERS, INFLIGHT_MS] = [16, 200]
const [SECONDS, RATE] = [Number(process.argv[2] ?? 15), Number(process.argv[3] ?? 500)]
const SHAPE = { layers: 16, experts: 128, topK: 8, tokens: 400 }

if (process.send === undefined) await gateway()
else await others()

async function gateway() {
  const dist = new URL('../dist/', import.meta.url)
  const { fileSchema } = await import(new URL('gateway/config/schema/schema.js', dist))
  const { settle } = await import(new URL('gateway/config/settle.js', dist))
  const { startGateway } = await import(new URL('gateway/app/start-gateway.js', dist))
  const { createLog } = await import(new URL('gateway/observe/log/log.js', dist))
  const { eldrObject, makeCounts } = await import(new URL('../test/fake-worker/counts.mjs', import.meta.url))
  const child = fork(fileURLToPath(import.meta.url), { execArgv: [] })
  const told = () => new Promise(resolve => child.once('message', resolve))
  const { urls } = await told()
  const artifact =
    process.argv[4] ??
    readdirSync('eldr-out')
      .map(name => `eldr-out/${name}`)
      .find(name => name.includes('lab16-task'))
  const settings = settle(
    fileSchema.parse({
      server: { port: 0 },
      workers: { prefill: [urls[0]], decode: urls.slice(1) },
      routing: { artifact },
    }),
  )
  const running = await startGateway(settings, createLog({ logLevel: 'silent', logFormat: 'json' }))
  const { router, registry } = running.context
  while (registry.candidates('decode', performance.now()).length < DECODERS) await new Promise(setImmediate)
  const handoffs = Array.from({ length: 64 }, (_, v) => ({
    counts: eldrObject(SHAPE, makeCounts(SHAPE, v + 1)),
    promptTokens: SHAPE.tokens,
  }))
  const fromMs = performance.now()
  let made = 0
  const timer = setInterval(() => {
    for (const due = ((performance.now() - fromMs) * RATE) / 1000; made < due; made++) {
      const place = router.toDecode(`r${made}`, handoffs[made % handoffs.length], SHAPE.tokens, new Set())
      setTimeout(() => {
        place.dispatch.succeeded(performance.now())
        place.left()
      }, INFLIGHT_MS)
    }
  }, 2)
  for (const watchers of [0, 1, 4, 0]) {
    child.send({ watch: watchers, url: running.url })
    await told()
    await new Promise(resolve => setTimeout(resolve, 2_000))
    const [cpu, count, atMs] = [process.cpuUsage(), made, performance.now()]
    await new Promise(resolve => setTimeout(resolve, SECONDS * 1000))
    const { user, system } = process.cpuUsage(cpu)
    const seconds = (performance.now() - atMs) / 1000
    const line = {
      watchers,
      decisionsPerSecond: Math.round((made - count) / seconds),
      cpuMsPerSecond: Number(((user + system) / 1000 / seconds).toFixed(2)),
    }
    console.log(JSON.stringify(line))
  }
  clearInterval(timer)
  child.kill()
  await running.stop()
}

async function others() {
  const cells = SHAPE.layers * SHAPE.experts
  const union = Buffer.from(
    Uint8Array.from({ length: cells }, (_, cell) => (cell % 3 === 0 ? 1 : 0)),
  ).toString('base64')
  const body = JSON.stringify({
    ...SHAPE,
    top_k: SHAPE.topK,
    batch: 12,
    active: Array(SHAPE.layers).fill(43),
    union,
  })
  const listening = Array.from({ length: DECODERS + 1 }, async () => {
    const server = createServer((request, response) =>
      response.end(request.url === '/eldr/union' ? body : ''),
    )
    await new Promise(resolve => server.listen(0, '127.0.0.1', resolve))
    return `http://127.0.0.1:${server.address().port}`
  })
  process.send({ urls: await Promise.all(listening) })
  let stop = new AbortController()
  process.on('message', async ({ watch, url }) => {
    stop.abort()
    stop = new AbortController()
    const { signal } = stop
    await Promise.all(Array.from({ length: watch }, () => watching(url, signal)))
    process.send('watching')
  })
}

/** As the page does. */
async function watching(url, signal) {
  const get = path => fetch(`${url}${path}`, { signal })
  await (await get('/eldr/plane')).text()
  const { body } = await get('/eldr/pulse')
  const reading = async () => {
    for await (const _ of body);
  }
  const asking = async () => {
    while (!signal.aborted) {
      await (await get('/eldr/experts')).text()
      await new Promise(resolve => setTimeout(resolve, 700))
    }
  }
  for (const work of [reading, asking]) work().catch(() => undefined)
}
