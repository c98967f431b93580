/**
 * Runs in a network namespace and takes commands as lines of JSON: sends requests, and steady traffic whose
 * responses are all checked. A namespace belongs to a process, so requests from a machine need a process
 * there. Exits at the end of its input.
 */
import { createInterface } from 'node:readline'
import { createClient } from '@redis/client'
import { Agent, request } from 'undici'

const dispatcher = new Agent({ connect: { timeout: 3_000 }, keepAliveTimeout: 1_000, pipelining: 1 })
let lanes = []
let outcomes = []
let ending = new AbortController()
/** Controllers of held streams, by the id of the command. */
const held = new Map()

const commands = {
  async ask({ url, method = 'GET', headers = {}, body, timeoutMs = 3_000 }) {
    const started = performance.now()
    const response = await request(url, {
      method,
      headers,
      body,
      dispatcher,
      signal: AbortSignal.timeout(timeoutMs),
    })
    return {
      status: response.statusCode,
      text: await response.body.text(),
      tookMs: performance.now() - started,
    }
  },
  async store({ url, command }) {
    const client = createClient({ url, RESP: 2, socket: { reconnectStrategy: false, connectTimeout: 3_000 } })
    client.on('error', () => {})
    await client.connect()
    try {
      return { reply: await client.sendCommand(command) }
    } finally {
      client.destroy()
    }
  },
  async start({ gateways, lanesEach, tokens, timeoutMs }) {
    ending = new AbortController()
    outcomes = []
    lanes = Object.entries(gateways).flatMap(([name, url]) =>
      Array.from({ length: lanesEach }, (_, at) => lane({ name, url, at, tokens, timeoutMs })),
    )
    return {}
  },
  /** Requests that have ended since the last call. */
  async take() {
    const taken = outcomes
    outcomes = []
    return { outcomes: taken }
  },
  async stop() {
    ending.abort()
    await Promise.all(lanes)
    return commands.take()
  },
  /**
   * Concurrent streams. Reports when each has started, and responds when all have ended or were cancelled.
   */
  async streams({ gateway, url, count, tokens, timeoutMs, id }) {
    const leave = new AbortController()
    held.set(id, leave)
    const one = at =>
      generate({
        name: gateway,
        url,
        prompt: `Held ${at}`,
        tokens,
        timeoutMs,
        stream: true,
        leave: leave.signal,
        begun: () => write({ id, begun: at }),
      })
    return { outcomes: await Promise.all(Array.from({ length: count }, (_, at) => one(at))) }
  },
  async leave({ streams }) {
    held.get(streams).abort()
    held.delete(streams)
    return {}
  },
}

async function lane({ name, url, at, tokens, timeoutMs }) {
  for (let n = 0; !ending.signal.aborted; n++) {
    const outcome = await generate({
      name,
      url,
      prompt: `Lane ${at} of ${name} asks for number ${n}`,
      tokens,
      timeoutMs,
      stream: n % 3 !== 2,
    })
    outcomes.push(outcome)
    // Wait after a refusal as a real client does: a busy loop would only measure itself.
    if (outcome.end !== 'ok') await new Promise(resolve => setTimeout(resolve, 50))
  }
}

async function generate({ name, url, prompt, tokens, timeoutMs, stream, leave, begun }) {
  const startedMs = performance.now()
  const outcome = { gateway: name, stream, end: 'ok', code: '', tokens: 0, firstMs: 0, totalMs: 0 }
  try {
    const response = await request(`${url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ prompt, max_tokens: tokens, ignore_eos: true, return_token_ids: true, stream }),
      dispatcher,
      headersTimeout: 0,
      bodyTimeout: 0,
      signal: AbortSignal.any([AbortSignal.timeout(timeoutMs), ...(leave === undefined ? [] : [leave])]),
    })
    let text = ''
    for await (const piece of response.body) {
      if (text === '') {
        outcome.firstMs = performance.now() - startedMs
        begun?.()
      }
      text += piece
    }
    Object.assign(outcome, outcomeOf(response.statusCode, text, stream, tokens))
  } catch (error) {
    outcome.end = leave?.aborted ? 'left' : error.name === 'TimeoutError' ? 'hung' : 'broken'
    outcome.code = typeof error.code === 'string' ? error.code : error.message
  }
  outcome.totalMs = performance.now() - startedMs
  return outcome
}

/**
 * `ok`: all requested tokens and, if streamed, `[DONE]`; `error`: an error response or event of the gateway
 * or a worker.
 */
function outcomeOf(status, text, stream, wanted) {
  if (status !== 200) return { end: 'error', code: codeIn(text) ?? `status ${status}` }
  const events = stream
    ? text
        .split('\n\n')
        .filter(Boolean)
        .map(event => event.slice('data: '.length))
    : [text]
  const done = !stream || events.at(-1) === '[DONE]'
  const bodies = events.filter(event => event !== '[DONE]').map(event => JSON.parse(event))
  const tokens = bodies.reduce((sum, { choices }) => sum + (choices?.[0]?.token_ids?.length ?? 0), 0)
  const failure = bodies.find(({ error }) => error !== undefined)?.error
  if (failure !== undefined) return { end: 'error', code: failure.code, tokens }
  if (!done || tokens !== wanted)
    return { end: 'wrong', code: `${tokens} of ${wanted} tokens, ${done ? '' : 'not '}done`, tokens }
  return { end: 'ok', tokens }
}

function codeIn(text) {
  try {
    return JSON.parse(text).error.code
  } catch {
    return undefined
  }
}

function write(message) {
  process.stdout.write(`${JSON.stringify(message)}\n`)
}

createInterface({ input: process.stdin })
  .on('line', line => {
    const { id, work, ...rest } = JSON.parse(line)
    commands[work]({ ...rest, id }).then(
      result => write({ id, ...result }),
      error => write({ id, error: error.message || error.name || String(error) }),
    )
  })
  .once('close', () => process.exit(0))
write({ id: 0 })
