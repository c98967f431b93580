// Lower bound for a gateway in Node: node:http and undici's dispatch, both legs of PD, workers in turn; no
// policy, limits or retries, chunks passed on unread. Bodies are parsed and serialised; with --splice changed
// fields are appended to the unparsed bytes.
//
//   node bench/gateway/proxies/undici.mjs --port 8000 --prefill URL --prefill URL --decode URL --decode URL
//     [--splice]
import { createServer } from 'node:http'
import { parseArgs } from 'node:util'
import { Pool } from 'undici'
import { decodeBytes, inTurn, prefillBytes, prefillObject } from '../lib/pd.mjs'

const { values } = parseArgs({
  options: {
    port: { type: 'string', default: '0' },
    prefill: { type: 'string', multiple: true, default: [] },
    decode: { type: 'string', multiple: true, default: [] },
    splice: { type: 'boolean', default: false },
  },
})
const poolsOf = urls =>
  inTurn(urls.map(url => new Pool(url, { connections: 512, headersTimeout: 0, bodyTimeout: 0 })))
const [nextPrefill, nextDecode] = [poolsOf(values.prefill), poolsOf(values.decode)]
const headers = { 'content-type': 'application/json' }

/** The two legs' bodies: prefill at once, decode when the hand-off is there. */
function legs(bytes) {
  if (values.splice) return { prefill: prefillBytes(bytes), decode: answer => decodeBytes(bytes, answer) }
  const body = JSON.parse(bytes.toString())
  const decode = answer =>
    JSON.stringify({ ...body, kv_transfer_params: JSON.parse(answer.toString()).kv_transfer_params })
  return { prefill: JSON.stringify(prefillObject(body)), decode }
}

const server = createServer((request, response) => {
  if (request.method === 'GET') return response.end()
  const parts = []
  request.on('data', part => parts.push(part))
  request.on('end', () => {
    const { prefill, decode } = legs(parts.length === 1 ? parts[0] : Buffer.concat(parts))
    const answer = []
    nextPrefill().dispatch(
      { method: 'POST', path: request.url, headers, body: prefill },
      {
        onRequestStart() {}, // tells undici that these are new-style handlers
        onResponseStart() {},
        onResponseData: (_, part) => void answer.push(part),
        onResponseEnd: () => relay(request, response, decode(Buffer.concat(answer))),
        onResponseError: () => response.destroy(),
      },
    )
  })
})

function relay(request, response, body) {
  nextDecode().dispatch(
    { method: 'POST', path: request.url, headers, body },
    {
      onRequestStart: controller =>
        response.once(
          'close',
          () => response.writableFinished || controller.abort(new Error('the client left')),
        ),
      onResponseStart(_, status, { 'content-type': type, 'content-length': length }) {
        response.writeHead(status, {
          'content-type': type,
          ...(length === undefined ? {} : { 'content-length': length }),
        })
      },
      onResponseData(controller, part) {
        if (response.write(part)) return
        controller.pause()
        response.once('drain', () => controller.resume())
      },
      onResponseEnd: () => response.end(),
      onResponseError: () => response.destroy(),
    },
  )
}

server.listen(Number(values.port), '127.0.0.1')
