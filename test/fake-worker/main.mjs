// A fake worker as a process, for benchmarks: prints one line of JSON when it listens.
//
//   node test/fake-worker/main.mjs --role prefill --port 0 [--counts 48x128x8 [--variants 8]]
//   node test/fake-worker/main.mjs --role decode --port 0 [--gap-ms 5]
//
// --until-stdin-ends: exits when the benchmark that holds its standard input exits.
import { parseArgs } from 'node:util'
import { startFakeWorker } from './worker.mjs'

const { values } = parseArgs({
  options: {
    role: { type: 'string', default: 'both' },
    host: { type: 'string', default: '127.0.0.1' },
    port: { type: 'string', default: '0' },
    model: { type: 'string', default: 'fake' },
    counts: { type: 'string' },
    variants: { type: 'string', default: '8' },
    'prefill-ms': { type: 'string', default: '0' },
    'first-token-ms': { type: 'string', default: '0' },
    'gap-ms': { type: 'string', default: '0' },
    tokens: { type: 'string', default: '16' },
    'token-ids': { type: 'boolean', default: false },
    'until-stdin-ends': { type: 'boolean', default: false },
  },
})

/** Layers × experts × top-k. @param {string} text */
function shapeOf(text) {
  const [layers, experts, topK] = text.split('x').map(Number)
  if (!layers || !experts || !topK)
    throw new Error(`--counts ${text}: expected layers x experts x top-k, such as 48x128x8`)
  return { layers, experts, topK, variants: Number(values.variants) }
}

const { role } = values
if (role !== 'prefill' && role !== 'decode' && role !== 'both')
  throw new Error(`--role ${role}: expected prefill, decode or both`)
const worker = await startFakeWorker({
  role,
  host: values.host,
  port: Number(values.port),
  model: values.model,
  prefillMs: Number(values['prefill-ms']),
  firstTokenMs: Number(values['first-token-ms']),
  gapMs: Number(values['gap-ms']),
  tokens: Number(values.tokens),
  tokenIds: values['token-ids'],
  recordLimit: 0,
  ...(values.counts === undefined ? {} : { counts: shapeOf(values.counts) }),
})
process.stdout.write(`${JSON.stringify({ url: worker.url, port: worker.port, pid: process.pid })}\n`)
if (values['until-stdin-ends']) process.stdin.on('close', () => process.exit()).resume()
