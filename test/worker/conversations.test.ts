/**
 * Conversations on embedded workers that compute a model: a gateway that keeps turns on their decode worker
 * gives the same text as one that does not, whatever the worker still has in its cache.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { readSamples, sumByName } from '../../src/cluster/metrics-text.ts'
import {
  killAll,
  leftovers,
  polled,
  type RunningProcess,
  startGatewayProcess,
  startWorkerProcess,
  type WorkerProcess,
} from './processes.ts'

interface Message {
  readonly role: string
  readonly content: string
}

let folder: string
let prefill: WorkerProcess
let decodes: WorkerProcess[]
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'eldr-talk-'))
  const worker = (role: string) =>
    startWorkerProcess(
      '--role',
      role,
      '--backend',
      'tiny',
      '--blocks',
      '512',
      '--enable-prompt-tokens-details',
    )
  prefill = await worker('prefill')
  decodes = await Promise.all(['decode', 'decode', 'decode'].map(worker))
}, 120_000)
afterAll(async () => {
  await killAll()
  await rm(folder, { recursive: true, force: true })
})

const workers = () => [prefill, ...decodes]
async function gatewayWith(conversations: object): Promise<RunningProcess> {
  const config = join(folder, `${Math.random()}.json`)
  await writeFile(config, JSON.stringify({ conversations, routing: { policy: 'jsq' } }))
  const gateway = await startGatewayProcess([
    '--config',
    config,
    '--prefill',
    prefill.url,
    ...decodes.flatMap(({ url }) => ['--decode', url]),
  ])
  const views = async () => (await fetch(`${gateway.url}/eldr/workers`)).text()
  await polled(views, text => text.split('"state":"ready"').length > workers().length, 'ready workers')
  return gateway
}

const OPENINGS = ['Write about the sea.', 'Explain how a tide works.', 'List three harbours.']
const FOLLOWING = ['Go on.', 'Say it in fewer words, and add a reason for each of them.', 'Thanks. One more?']

/** All responses of three conversations of four turns. */
async function talks(gateway: RunningProcess, between: () => Promise<unknown>): Promise<string[]> {
  const responses: string[] = []
  for (const [n, content] of OPENINGS.entries()) {
    const messages: Message[] = [{ role: 'user', content }]
    for (const following of [...FOLLOWING, undefined]) {
      const body = { messages, max_tokens: 24, temperature: n === 1 ? 0.8 : 0, seed: 7, ignore_eos: true }
      const response = await gateway.post('/v1/chat/completions', body)
      const { choices } = (await response.json()) as { choices: { message: Message }[] }
      const reply = choices[0]!.message.content
      responses.push(reply)
      messages.push({ role: 'assistant', content: reply })
      if (following !== undefined) messages.push({ role: 'user', content: following })
      await between()
    }
  }
  return responses
}

const emptyCaches = () =>
  Promise.all(
    workers().map(worker =>
      polled(
        async () => (await fetch(`${worker.url}/reset_prefix_cache`, { method: 'POST' })).status,
        status => status === 200,
        'an empty cache',
      ),
    ),
  )
async function sumOf(name: string, processes: readonly RunningProcess[]): Promise<number> {
  let sum = 0
  for (const { url } of processes)
    sum +=
      sumByName(readSamples(await (await fetch(`${url}/metrics`)).text(), new Set([name]))).get(name) ?? 0
  return sum
}

describe('conversations on embedded workers', () => {
  it('have the same text kept, without prefill, with empty caches, and without all of it', async () => {
    const off = await gatewayWith({ enabled: false })
    const plain = await talks(off, async () => {})
    expect(new Set(plain).size).toBe(12)
    await off.stop()

    const moved = () => sumOf('vllm:nixl_bytes_transferred_total', decodes)
    await emptyCaches()
    const kept = await gatewayWith({ enabled: true })
    const before = await moved()
    expect(await talks(kept, async () => {})).toEqual(plain)
    const whenKept = (await moved()) - before
    expect(await sumOf('eldr_conversation_turns_total', [kept])).toBe(9)

    // The gateway believes that the worker has the cache, and it has not.
    expect(await talks(kept, emptyCaches)).toEqual(plain)
    expect((await moved()) - before - whenKept).toBeGreaterThan(1.5 * whenKept)
    await kept.stop()

    const alone = await gatewayWith({ enabled: true, skipPrefillBelowTokens: 512 })
    const prefilled = () => sumOf('vllm:request_success_total', [prefill])
    const prefilledBefore = await prefilled()
    expect(await talks(alone, async () => {})).toEqual(plain)
    expect((await prefilled()) - prefilledBefore).toBe(3)
    expect(await talks(alone, emptyCaches)).toEqual(plain)
    await alone.stop()

    // A worker that had to compute a whole prompt gets no more of them.
    const wary = await gatewayWith({ enabled: true, skipPrefillBelowTokens: 16 })
    const inAll = 12
    const first = await prefilled()
    expect(await talks(wary, emptyCaches)).toEqual(plain)
    // Without the pause, only first turns and long ones were prefilled.
    expect((await prefilled()) - first).toBeGreaterThanOrEqual(inAll - decodes.length)
    await wary.stop()
    expect(await leftovers(...workers())).toEqual([])
  }, 240_000)

  it('continue on another worker when theirs is killed between two turns', async () => {
    const gateway = await gatewayWith({ enabled: true, skipPrefillBelowTokens: 512 })
    const messages: Message[] = [{ role: 'user', content: OPENINGS[0]! }]
    let holder = ''
    const send = async () => {
      const headers = { 'x-eldr-debug': '1' }
      const body = { messages, max_tokens: 24, temperature: 0 }
      const response = await gateway.post('/v1/chat/completions', body, { headers })
      expect(response.status).toBe(200)
      holder = response.headers.get('x-eldr-decode-worker')!
      return ((await response.json()) as { choices: { message: Message }[] }).choices[0]!.message
    }
    messages.push(await send(), { role: 'user', content: FOLLOWING[0]! })
    const first = holder
    const second = await send()
    expect(holder).toBe(first)
    const at = decodes.findIndex(({ url }) => new URL(url).host === holder)
    await decodes.splice(at, 1)[0]!.kill()
    expect(await send()).toEqual(second)
    expect(holder).not.toBe(first)
    await gateway.stop()
  }, 60_000)
})
