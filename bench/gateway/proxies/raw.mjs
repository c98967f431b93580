// Lower bound for sockets in Node: node:net with hand-written HTTP, both legs of PD, workers in turn; bytes
// of the decode worker are passed on unchanged. It trusts its peers and is not a model for a gateway.
//
//   node bench/gateway/proxies/raw.mjs --port 8000 --prefill URL --prefill URL --decode URL --decode URL
import { connect, createServer } from 'node:net'
import { parseArgs } from 'node:util'
import { decodeBytes, inTurn, prefillBytes } from '../lib/pd.mjs'
import { requestBytes } from '../lib/prompts.mjs'
import { Reply } from '../lib/reply.mjs'

const { values } = parseArgs({
  options: {
    port: { type: 'string', default: '0' },
    prefill: { type: 'string', multiple: true, default: [] },
    decode: { type: 'string', multiple: true, default: [] },
  },
})
const workersOf = urls => inTurn(urls.map(url => ({ url: new URL(url), idle: [] })))
const [nextPrefill, nextDecode] = [workersOf(values.prefill), workersOf(values.decode)]

/**
 * Sends one request on an idle connection; `onChunk` gets each chunk and where its body begins, `onEnd`
 * follows the last.
 */
function send(worker, body, onChunk, onEnd) {
  const { url, idle } = worker
  const line = idle.pop() ?? open(url)
  line.reply.reset()
  line.onData = chunk => {
    const { done, bodyAt } = line.reply.push(chunk)
    onChunk(chunk, bodyAt)
    if (!done) return
    idle.push(line)
    onEnd()
  }
  line.socket.write(requestBytes(body, url.host))
}

function open(url) {
  const socket = connect({ host: url.hostname, port: Number(url.port), noDelay: true })
  const line = { socket, reply: new Reply(), onData: () => undefined }
  socket.on('data', chunk => line.onData(chunk))
  socket.on('error', () => process.exit(1)) // workers of the benchmark do not fail
  return line
}

function serve(client, body, onEnd) {
  const parts = []
  send(
    nextPrefill(),
    prefillBytes(body),
    (chunk, bodyAt) => parts.push(chunk.subarray(bodyAt)),
    () => send(nextDecode(), decodeBytes(body, Buffer.concat(parts)), chunk => client.write(chunk), onEnd),
  )
}

createServer({ noDelay: true }, client => {
  let bytes = Buffer.alloc(0)
  let busy = false
  const next = () => {
    const headEnd = bytes.indexOf('\r\n\r\n')
    if (busy || headEnd < 0) return
    const head = bytes.toString('latin1', 0, headEnd)
    const length = Number(/\r\ncontent-length:[ \t]*(\d+)/i.exec(head)?.[1] ?? 0)
    const end = headEnd + 4 + length
    if (bytes.length < end) return
    const body = bytes.subarray(headEnd + 4, end)
    bytes = bytes.subarray(end)
    if (length === 0) return void client.write('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n')
    busy = true
    serve(client, body, () => {
      busy = false
      next()
    })
  }
  client.on('data', chunk => {
    bytes = bytes.length === 0 ? chunk : Buffer.concat([bytes, chunk])
    next()
  })
  client.on('error', () => client.destroy())
}).listen(Number(values.port), '127.0.0.1')
