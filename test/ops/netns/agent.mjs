/**
 * Runs on a machine of the network and does what it is told by lines of JSON: asks, and sends steady traffic
 * whose every answer is checked.
 * Namespaces are of processes: a program that looks from a machine has to run in its namespace. It ends with
 * its input.
 */
import { createInterface } from 'node:readline'
import { createClient } from '@redis/client'
import { Agent, request } from 'undici'

const dispatcher = new Agent({ connect: { timeout: 3_000 }, keepAliveTimeout: 1_000, pipelining: 1 })
let lanes = []
let outcomes = []
let ending = new AbortController()
/** By the id of what asked for them. */
const held = new Map()

const works = {
  async ask({ url, method = 'GET', headers = {}, body, timeoutMs = 3_000 }) {
    const started = performance.now()
    const answer = await request(url, {
      method,
      headers,
      body,
      dispatcher,
      signal: AbortSignal.timeout(timeoutMs),
    })
    return { status: answer.statusCode, text: await answer.body.text(), tookMs: performance.now() - started }
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
  async start({ gateways, lanesEach, tokens, patienceMs }) {
    ending = new AbortController()
    outcomes = []
    lanes = Object.entries(gateways).flatMap(([name, url]) =>
      Array.from({ length: lanesEach }, (_, at) => lane({ name, url, at, tokens, patienceMs })),
    )
    return {}
  },
  /** What has ended since the last time. */
  async take() {
    const taken = outcomes
    outcomes = []
    return { outcomes: taken }
  },
  async stop() {
    ending.abort()
    await Promise.all(lanes)
    return works.take()
  },
  /**
   * Streams at once, of which it is told when each has begun; the answer comes when all have ended, or were
   * left.
   */
  async streams({ gateway, url, count, tokens, patienceMs, id }) {
    const leave = new AbortController()
    held.set(id, leave)
    const one = at =>
      generate({
        name: gateway,
        url,
        prompt: `Held ${at}`,
        tokens,
        patienceMs,
        stream: true,
        leave: leave.signal,
        begun: () => say({ id, begun: at }),
      })
    return { outcomes: await Promise.all(Array.from({ length: count }, (_, at) => one(at))) }
  },
  async leave({ streams }) {
    held.get(streams).abort()
    held.delete(streams)
    return {}
  },
}

async function lane({ name, url, at, tokens, patienceMs }) {
  for (let n = 0; !ending.signal.aborted; n++) {
    const outcome = await generate({
      name,
      url,
      prompt: `Lane ${at} of ${name} asks for number ${n}`,
      tokens,
      patienceMs,
      stream: n % 3 !== 2,
    })
    outcomes.push(outcome)
    // Who is refused at once must not ask again at once: a real client waits too, and a busy loop would only
    // measure itself.
    if (outcome.end !== 'ok') await new Promise(resolve => setTimeout(resolve, 50))
  }
}

async function generate({ name, url, prompt, tokens, patienceMs, stream, leave, begun }) {
  const startedMs = performance.now()
  const outcome = { gateway: name, stream, end: 'ok', code: '', tokens: 0, firstMs: 0, totalMs: 0 }
  try {
    const answer = await request(`${url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ prompt, max_tokens: tokens, ignore_eos: true, return_token_ids: true, stream }),
      dispatcher,
      headersTimeout: 0,
      bodyTimeout: 0,
      signal: AbortSignal.any([AbortSignal.timeout(patienceMs), ...(leave === undefined ? [] : [leave])]),
    })
    let text = ''
    for await (const piece of answer.body) {
      if (text === '') {
        outcome.firstMs = performance.now() - startedMs
        begun?.()
      }
      text += piece
    }
    Object.assign(outcome, judged(answer.statusCode, text, stream, tokens))
  } catch (error) {
    outcome.end = leave?.aborted ? 'left' : error.name === 'TimeoutError' ? 'hung' : 'broken'
    outcome.code = typeof error.code === 'string' ? error.code : error.message
  }
  outcome.totalMs = performance.now() - startedMs
  return outcome
}

/**
 * `ok` has every token that was asked for and, streamed, `[DONE]`; `told` is an error that the gateway or a
 * worker tells in its words.
 */
function judged(status, text, stream, wanted) {
  if (status !== 200) return { end: 'told', code: codeIn(text) ?? `status ${status}` }
  const events = stream
    ? text
        .split('\n\n')
        .filter(Boolean)
        .map(event => event.slice('data: '.length))
    : [text]
  const done = !stream || events.at(-1) === '[DONE]'
  const bodies = events.filter(event => event !== '[DONE]').map(event => JSON.parse(event))
  const tokens = bodies.reduce((sum, { choices }) => sum + (choices?.[0]?.token_ids?.length ?? 0), 0)
  const told = bodies.find(({ error }) => error !== undefined)?.error
  if (told !== undefined) return { end: 'told', code: told.code, tokens }
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

function say(answer) {
  process.stdout.write(`${JSON.stringify(answer)}\n`)
}

createInterface({ input: process.stdin })
  .on('line', line => {
    const { id, work, ...rest } = JSON.parse(line)
    works[work]({ ...rest, id }).then(
      result => say({ id, ...result }),
      error => say({ id, error: error.message || error.name || String(error) }),
    )
  })
  .once('close', () => process.exit(0))
say({ id: 0 })
