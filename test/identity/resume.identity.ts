/**
 * Decode workers are killed while they stream: every response is that of the unbroken run, to the event. With
 * one process and with two relays, for both back ends.
 */
import { afterEach, describe, expect, it } from 'vitest'
import { readSamples, sumByName } from '../../src/cluster/metrics-text.ts'
import {
  killAll,
  leftovers,
  polled,
  type RunningProcess,
  startGatewayProcess,
  startWorkerProcess,
  type WorkerProcess,
} from '../worker/processes.ts'

afterEach(killAll)

const BACK_ENDS = [
  ['tiny', ['--backend', 'tiny', '--blocks', '1024', '--pace', 'h200-first', '--speed', '0.4']],
  ['replay', ['--speed', '0.4']],
] as const
const TOKENS = 40

/** Greedy and seeded, completions and chats, with usage, stop strings and several choices. */
const BODIES = Array.from({ length: 24 }, (_, i) => {
  const story = `Tell me about the number ${i}, slowly`
  return {
    ...(i % 2 === 0 ? { prompt: story } : { messages: [{ role: 'user', content: story }] }),
    max_tokens: TOKENS - (i % 5),
    min_tokens: 30,
    // At the higher one most tokens are parts of characters.
    temperature: i % 3 === 0 ? 0 : i % 3 === 1 ? 0.8 : 50,
    seed: i,
    stream: true,
    ...(i % 4 < 2 && { stream_options: { include_usage: true } }),
    ...(i % 6 === 4 && { stop: ['the end', 'q'] }),
    ...(i % 12 === 7 && { n: 2 }),
  }
})

/** What is read of an event. */
interface StreamEvent {
  id: string
  object: string
  created: number
  model: string
  usage?: unknown
  choices: {
    index: number
    text?: string
    delta?: { role?: string; content?: string }
    finish_reason?: string
    stop_reason?: unknown
  }[]
}

interface Answer {
  /** Text and end of each choice, and the usage. */
  readonly said: string
  readonly ids: number
}

/** `onEvent` is called for each event as it comes. */
async function ask(gateway: RunningProcess, body: object, onEvent = () => {}): Promise<Answer> {
  const path = 'messages' in body ? '/v1/chat/completions' : '/v1/completions'
  const response = await gateway.post(path, body)
  let text = ''
  for await (const chunk of response.body!.pipeThrough(new TextDecoderStream())) {
    text += chunk
    onEvent()
  }
  const events = text.split('\n\n').filter(Boolean)
  if (events.pop() !== 'data: [DONE]') return { said: `not complete: ${text.slice(-300)}`, ids: 0 }
  const choices: { role?: string; text: string; end: unknown }[] = []
  const heads = new Set<string>()
  let usage: unknown
  for (const event of events) {
    const read = JSON.parse(event.slice(6)) as StreamEvent
    heads.add([read.id, read.object, read.created, read.model].join())
    usage = read.usage ?? usage
    for (const { index, text: own, delta, finish_reason, stop_reason } of read.choices) {
      const choice = (choices[index] ??= { text: '', end: undefined })
      if (delta?.role) choice.role = `${choice.role ?? ''}${delta.role}`
      choice.text += own ?? delta!.content
      if (finish_reason) choice.end = [choice.end, finish_reason, stop_reason]
    }
  }
  return { said: JSON.stringify({ choices, usage }), ids: 'n' in body ? 1 : heads.size }
}

async function counted(gateway: RunningProcess, name: string): Promise<number> {
  const text = await (await fetch(`${gateway.url}/metrics`)).text()
  return sumByName(readSamples(text, new Set([name]))).get(name) ?? 0
}

const startAll = (count: number, role: string, flags: readonly string[]) =>
  Promise.all(Array.from({ length: count }, () => startWorkerProcess('--role', role, ...flags)))

describe.each(BACK_ENDS)('streams of %s whose decode workers are killed', (_name, flags) => {
  it.each([1, 2])('go on as if nothing had happened, with %i processes', async processes => {
    const [prefills, decodes] = await Promise.all([
      startAll(2, 'prefill', flags),
      startAll(4, 'decode', flags),
    ])
    const urls = (workers: readonly WorkerProcess[], flag: string) =>
      workers.flatMap(({ url }) => [flag, url])
    const gateway = await startGatewayProcess([
      '--resume',
      ...urls(prefills, '--prefill'),
      ...urls(decodes, '--decode'),
      '--policy',
      'round_robin',
      '--processes',
      String(processes),
    ])
    const views = async () => (await fetch(`${gateway.url}/eldr/workers`)).text()
    await polled(views, text => text.split('"state":"ready"').length > 6, 'six ready workers')
    const whole = await Promise.all(BODIES.map(body => ask(gateway, body)))
    expect(whole.filter(({ said }) => said.startsWith('not'))).toEqual([])

    let events = 0
    /** Two workers die, one after the other, when all streams have begun. */
    const onEvent = () => {
      events++
      if (events === 5 * BODIES.length) void decodes[0]!.kill()
      if (events === 12 * BODIES.length) void decodes[1]!.kill()
    }
    const again = await Promise.all(BODIES.map(body => ask(gateway, body, onEvent)))
    const page = await (await fetch(`${gateway.url}/metrics`)).text()
    expect(page.match(/^eldr_streams_not_resumed_total\{.*$/gm) ?? []).toEqual([])
    for (const [at, { said, ids }] of again.entries()) {
      expect([at, said]).toEqual([at, whole[at]!.said])
      expect([at, ids]).toEqual([at, 1])
    }
    expect(await counted(gateway, 'eldr_streams_resumed_total')).toBeGreaterThan(2)
    await polled(
      () => counted(gateway, 'eldr_tickets'),
      tickets => tickets === 0,
      'no tickets',
    )
    const [sum, count] = await Promise.all(
      ['sum', 'count'].map(part => counted(gateway, `eldr_resume_pause_seconds_${part}`)),
    )
    console.log(`${count} streams resumed, mean pause ${((1000 * sum!) / count!).toFixed(0)} ms`)
    expect(await leftovers(...prefills, ...decodes.slice(2))).toEqual([])
  })
})
