/**
 * A capturing server on a real socket in this process. Experts are derived from the prompt, so that tests
 * know the expected ones.
 */
import { createHash } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { calibrate, type CalibrationPlan, type CalibrationResult } from '../../src/calibrate/calibrate.ts'
import { openEndpoint } from '../../src/load/endpoint.ts'
import { encodeCounts } from '../../src/wire/counts.ts'
import { encodeDecodeExperts } from '../../src/wire/decode-experts.ts'
import { temporaryFolder } from '../trace-support.ts'

export interface RequestBody {
  readonly model: string
  readonly prompt?: string | number[]
  readonly messages?: { readonly role: string; readonly content: string }[]
  readonly max_tokens: number
  readonly ignore_eos?: boolean
  readonly temperature: number
  readonly seed?: number
  readonly stream: boolean
  readonly kv_transfer_params: unknown
}

export interface Shape {
  readonly layers: number
  readonly experts: number
  readonly topK: number
  readonly halfLife?: number
}
export const SHAPE: Shape = { layers: 3, experts: 8, topK: 2 }

/** Experts of a text at one token per byte: [tokens][layers][topK], different within a layer. */
export function expertsOf(text: string, tokens: number, { layers, experts, topK }: Shape): number[] {
  return Array.from({ length: tokens }, (_, token) => {
    const bytes = createHash('sha256')
      .update(`${text.slice(0, token + 1)} ${token}`)
      .digest()
    return Array.from({ length: layers }, (_l, layer) =>
      Array.from({ length: topK }, (_k, k) => (bytes[layer]! * 7 + k) % experts),
    ).flat()
  }).flat()
}

export function countsOf(text: string, shape: Shape): Uint32Array {
  const counts = new Uint32Array(shape.layers * shape.experts)
  expertsOf(text, text.length, shape).forEach(
    (id, i) => counts[(Math.floor(i / shape.topK) % shape.layers) * shape.experts + id]!++,
  )
  return counts
}

export const textOf = ({ prompt, messages }: RequestBody): string =>
  messages === undefined
    ? typeof prompt === 'string'
      ? prompt
      : prompt!.join()
    : messages.map(({ content }) => content).join()

/** A valid response to one request; `steps`: fewer than requested. */
export function eldrOf(
  body: RequestBody,
  shape: Shape = SHAPE,
  steps = body.max_tokens - 1,
): Record<string, unknown> {
  const text = textOf(body)
  const all = expertsOf(text, text.length + steps, shape)
  const counts = countsOf(text, shape)
  const recent =
    shape.halfLife === undefined
      ? undefined
      : { values: Float64Array.from(counts, count => Math.min(count, 200) / 2), halfLife: shape.halfLife }
  const { layers, experts, topK } = shape
  const ids = Uint16Array.from(all.slice(text.length * layers * topK))
  return {
    ...encodeCounts({
      ...shape,
      tokens: text.length,
      covered: text.length,
      counts,
      ...(recent && { recent }),
    }),
    decode: encodeDecodeExperts({ layers, experts, topK, steps, ids }),
  }
}

export interface CapturingServer {
  readonly url: string
  /** Bodies of all requests, in order of arrival. */
  readonly asked: RequestBody[]
  /** Headers of these requests and of those for the list of models. */
  readonly headers: IncomingMessage['headers'][]
  readonly maxInFlight: () => number
  stop(): Promise<void>
}

/** `answer` may send another response and then returns true. `number` counts from 0. */
export async function capturing(
  answer: (
    body: RequestBody,
    response: ServerResponse,
    number: number,
  ) => boolean | void | Promise<boolean | void> = () => false,
  shape: Shape = SHAPE,
): Promise<CapturingServer> {
  const asked: RequestBody[] = []
  const headers: IncomingMessage['headers'][] = []
  let [now, most] = [0, 0]
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      headers.push(request.headers)
      if (request.url === '/v1/models') return void response.end('{"data":[{"id":"synthetic"}]}')
      const body = JSON.parse(Buffer.concat(chunks).toString()) as RequestBody
      const number = asked.push(body) - 1
      most = Math.max(most, ++now)
      response.on('close', () => now--)
      void Promise.resolve(answer(body, response, number)).then(done => {
        if (done !== true)
          respond(response, 200, { id: 'x', choices: [], kv_transfer_params: { eldr: eldrOf(body, shape) } })
      })
    })
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    asked,
    headers,
    maxInFlight: () => most,
    stop() {
      server.closeAllConnections()
      return new Promise(resolve => server.close(() => resolve()))
    },
  }
}

export function respond(response: ServerResponse, status: number, body: unknown): true {
  response
    .writeHead(status, { 'content-type': 'application/json' })
    .end(typeof body === 'string' ? body : JSON.stringify(body))
  return true
}

/** Runs a calibration in this process. */
export async function run(
  url: string,
  files: Pick<CalibrationPlan, 'prompts' | 'out'>,
  more: Partial<CalibrationPlan> = {},
): Promise<CalibrationResult> {
  const endpoint = openEndpoint({ url, api: 'completions', headers: more.headers ?? [] })
  try {
    return await calibrate({
      endpoint,
      ...files,
      api: 'auto',
      steps: 5,
      ignoreEos: true,
      temperature: 0,
      seed: 0,
      headers: [],
      timeoutMs: 20_000,
      minCovered: 1,
      skipRefused: false,
      concurrency: 4,
      retries: 0,
      split: 'calibration',
      holdout: 0,
      force: false,
      stop: new AbortController().signal,
      ...more,
    })
  } finally {
    await endpoint.close()
  }
}

export const PROMPTS = Array.from({ length: 12 }, (_, i) => ({
  prompt: `prompt number ${i} ${'x'.repeat(i)}`,
  domain: ['law', 'code'][i % 2],
}))

/** Servers and files of one test file. */
export function workshop() {
  const folder = temporaryFolder()
  const servers: CapturingServer[] = []
  let files = 0
  return {
    folder: folder.path,
    async serve(...args: Parameters<typeof capturing>): Promise<CapturingServer> {
      const server = await capturing(...args)
      servers.push(server)
      return server
    },
    /** Writes a prompt file and returns paths for the outputs. */
    given(lines: readonly unknown[]) {
      const name = `c${files++}`
      const prompts = join(folder.path, `${name}.jsonl`)
      writeFileSync(
        prompts,
        lines.map(line => (typeof line === 'string' ? line : JSON.stringify(line))).join('\n'),
      )
      return {
        prompts,
        out: join(folder.path, `${name}.calibration.safetensors`),
        evaluation: join(folder.path, `${name}.evaluation.safetensors`),
      }
    },
    async end(forGood = false): Promise<void> {
      await Promise.all(servers.splice(0).map(server => server.stop()))
      if (forGood) folder.remove()
    },
  }
}
