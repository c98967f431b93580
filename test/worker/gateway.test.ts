/**
 * The whole path as processes: client, `eldr serve`, prefill worker, decode worker. Outputs do not depend on
 * the policy.
 */
import { execFile } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { readSamples } from '../../src/cluster/metrics-text.ts'
import {
  killAll,
  leftovers,
  polled,
  PROGRAM,
  type RunningProcess,
  startGatewayProcess,
  startWorkerProcess,
  type WorkerProcess,
} from './processes.ts'
import { eventsOf } from './served.ts'

let folder: string
let artifact: string
let prefills: WorkerProcess[]
let decodes: WorkerProcess[]
const workers = () => [...prefills, ...decodes]

/** The same suite for replayed experts and for a computed model (`npm run test:identity`). */
const BACK_ENDS = [
  { name: 'replay', model: 'lab16', trace: 'lab16-task', flags: ['--speed', '4'], slow: ['--speed', '0.02'] },
  {
    name: 'tiny',
    model: 'tiny6',
    trace: 'tiny6-prompts',
    flags: ['--backend', 'tiny', '--blocks', '1024'],
    slow: ['--backend', 'tiny', '--pace', 'h200-first', '--speed', '0.02'],
  },
].filter(({ name }) => name === (process.env['ELDR_TEST_BACK_END'] ?? 'replay'))

async function startAll({ trace, flags }: (typeof BACK_ENDS)[number]): Promise<void> {
  folder = await mkdtemp(join(tmpdir(), 'eldr-worker-'))
  artifact = join(folder, 'artifact.safetensors')
  const calibration = join(import.meta.dirname, `../../data/${trace}.calibration.safetensors`)
  const options = ['--workers', '3', '--out', artifact, '--layers', '0-3', '--transform', 'count']
  await promisify(execFile)(process.execPath, [PROGRAM, 'fit', calibration, ...options])
  // Leases expire within the test’s timeout: if a decode worker dies before it reads, nothing else frees the
  // blocks.
  const many = (count: number, role: string) =>
    Promise.all(
      Array.from({ length: count }, () => startWorkerProcess('--role', role, ...flags, '--lease-ms', '5000')),
    )
  ;[prefills, decodes] = await Promise.all([many(2, 'prefill'), many(3, 'decode')])
}

async function stopAll(): Promise<void> {
  await killAll()
  await rm(folder, { recursive: true, force: true })
}

function gatewayWith(...flags: string[]): Promise<RunningProcess> {
  const urls = [
    ...prefills.flatMap(({ url }) => ['--prefill', url]),
    ...decodes.flatMap(({ url }) => ['--decode', url]),
  ]
  return startGatewayProcess([...urls, '--log-level', 'info', ...flags])
}

/** The gateway sends nothing to a worker before its first health check. */
async function ready(gateway: RunningProcess, count: number): Promise<void> {
  const views = async () => (await fetch(`${gateway.url}/eldr/workers`)).text()
  await polled(views, text => text.split('"state":"ready"').length > count, `${count} ready workers`)
}

/** Greedy and sampled; a replay follows rows of its trace. */
const bodiesFor = (backEnd: string) =>
  Array.from({ length: 24 }, (_, i) => ({
    prompt: Array.from({ length: 30 + 17 * (i % 9) }, (_, t) => 300 + ((t * 7 + i * 13) % 500)),
    max_tokens: 8 + (i % 12),
    ...(backEnd === 'replay' ? { eldr_row: i * 3 } : { ignore_eos: true }),
    temperature: i % 3 === 0 ? 0 : 0.9,
    seed: i,
    stream: i % 2 === 0,
  }))

async function textOf(gateway: RunningProcess, body: ReturnType<typeof bodiesFor>[number]): Promise<string> {
  const answer = await gateway.post('/v1/completions', body)
  if (answer.status !== 200) throw new Error(`${answer.status}: ${await answer.text()}`)
  if (!body.stream) return ((await answer.json()) as { choices: { text: string }[] }).choices[0]!.text
  const events = await eventsOf(answer)
  expect(events.at(-1)).toBe('[DONE]')
  return events
    .slice(0, -1)
    .map(event => (JSON.parse(event) as { choices: { text: string }[] }).choices[0]!.text)
    .join('')
}

async function sample(gateway: RunningProcess, name: string) {
  const text = await (await fetch(`${gateway.url}/metrics`)).text()
  return readSamples(text, new Set([name]))
}

describe.each(BACK_ENDS)('a cluster of processes, $name', backEnd => {
  const bodies = bodiesFor(backEnd.name)
  const { model } = backEnd
  beforeAll(() => startAll(backEnd), 120_000)
  afterAll(stopAll)

  it('gives every request the same bytes under every policy, routed by its experts where the policy uses them', async () => {
    const texts = new Map<string, string[]>()
    for (const policy of ['round_robin', 'jsq', 'eldr', 'union']) {
      const gateway = await gatewayWith(
        '--policy',
        policy,
        ...(policy === 'eldr' ? ['--artifact', artifact] : []),
      )
      await ready(gateway, 5)
      texts.set(policy, await Promise.all(bodies.map(body => textOf(gateway, body))))
      // The counts of every hand-off were read: none was routed by load for lack of counts.
      expect(
        (await sample(gateway, 'eldr_signature_rejects_total')).filter(({ value }) => value > 0),
      ).toEqual([])
      const decisions = await sample(gateway, 'eldr_decisions_total')
      expect(decisions.reduce((sum, { value }) => sum + value, 0)).toBe(bodies.length)
      expect(await gateway.stop()).toBe(0)
      expect(await leftovers(...workers())).toEqual([])
    }
    const [first, ...others] = [...texts.values()]
    expect(new Set(first).size).toBeGreaterThan(20)
    for (const other of others) expect(other).toEqual(first)
  })

  it('serves OpenAI’s client: chats, streams, several choices, errors, and clients that leave', async () => {
    const gateway = await gatewayWith('--policy', 'union')
    await ready(gateway, 5)
    const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'none', maxRetries: 0 })
    const chat = {
      model,
      temperature: 0,
      messages: [{ role: 'user' as const, content: 'Tell me a story' }],
      max_completion_tokens: 12,
    }
    const whole = await client.chat.completions.create(chat)
    let text = ''
    for await (const { choices } of await client.chat.completions.create({ ...chat, stream: true }))
      text += choices[0]?.delta.content ?? ''
    expect(text).toBe(whole.choices[0]!.message.content)
    const several = await client.completions.create({
      model,
      prompt: ['one two', 'three four'],
      max_tokens: 4,
    })
    expect(several.choices.map(({ index }) => index)).toEqual([0, 1])
    await expect(client.chat.completions.create({ ...chat, model: 'other' })).rejects.toMatchObject({
      status: 404,
    })
    await expect(
      client.chat.completions.create({ ...chat, max_completion_tokens: 1e9 }),
    ).rejects.toMatchObject({ status: 400 })
    const left = await client.chat.completions.create({ ...chat, max_completion_tokens: 1_500, stream: true })
    // oxlint-disable-next-line no-unreachable-loop -- the first token is enough
    for await (const _ of left) break
    left.controller.abort()
    await Promise.all(workers().map(worker => worker.until(({ requests }) => requests === 0)))
    await gateway.stop()
    expect(await leftovers(...workers())).toEqual([])
  })

  it('leaves nothing behind when clients leave at any moment, before, between and during the legs', async () => {
    const gateway = await gatewayWith('--policy', 'union')
    await ready(gateway, 5)
    const outcomes = await Promise.all(
      Array.from({ length: 60 }, async (_, i) => {
        const gone = new AbortController()
        const body = { ...bodies[i % bodies.length]!, max_tokens: 1_800, ignore_eos: true, stream: true }
        const answer = gateway
          .post('/v1/completions', body, { signal: gone.signal })
          .then(async response => response.text())
        // Event loop turns, not milliseconds: they cover different stages every time.
        for (let turn = 0; turn < 40 * i; turn++) await new Promise(setImmediate)
        gone.abort()
        return answer.then(
          () => 'whole',
          () => 'left',
        )
      }),
    )
    expect(new Set(outcomes)).toEqual(new Set(['left']))
    await Promise.all(
      workers().map(worker => worker.until(({ requests, leases }) => requests + leases === 0)),
    )
    await gateway.stop()
    expect(await leftovers(...workers())).toEqual([])
  })

  it('survives a decode worker that dies under load: requests without output are retried elsewhere, nothing is left behind', async () => {
    const victim = await startWorkerProcess('--role', 'decode', ...backEnd.slow)
    const urls = [
      ...prefills.flatMap(({ url }) => ['--prefill', url]),
      '--decode',
      victim.url,
      '--decode',
      decodes[0]!.url,
    ]
    const gateway = await startGatewayProcess([...urls, '--policy', 'round_robin', '--log-level', 'info'])
    await ready(gateway, 4)
    const whole = bodies.filter(({ stream }) => !stream)
    const answers = Promise.all(whole.map(body => textOf(gateway, body)))
    await victim.until(({ stats }) => stats.running > 0)
    await victim.kill()
    const texts = await answers
    const direct = await Promise.all(
      whole.map(
        async body =>
          (
            (await (await decodes[1]!.post('/v1/completions', body)).json()) as {
              choices: { text: string }[]
            }
          ).choices[0]!.text,
      ),
    )
    expect(texts).toEqual(direct)
    await gateway.stop()
    expect(await leftovers(...workers())).toEqual([])
  })
})
