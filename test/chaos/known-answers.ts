/** The answers of one quiet worker, which every later answer must equal. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { PROGRAM } from '../worker/processes.ts'
import type { KnownAnswer } from './observation.ts'

const PROMPTS = 14
const [MIN_TOKENS, MORE_TOKENS] = [16, 40]

/** Chats and completions, greedy and with a seed, of different lengths. */
function requests(): Pick<KnownAnswer, 'name' | 'path' | 'body'>[] {
  const text = readFileSync(new URL('../../data/prompts/calibration.jsonl', import.meta.url), 'utf8')
  const lines = text
    .trimEnd()
    .split('\n')
    .map(line => JSON.parse(line) as { id: string; prompt: string })
  // Short ones: prefill costs most and proves least.
  const prompts = lines.toSorted((a, b) => a.prompt.length - b.prompt.length).slice(0, 4 * PROMPTS)
  return Array.from({ length: PROMPTS }, (_, at) => prompts[4 * at]!).flatMap(({ id, prompt }, at) => {
    const isChat = at % 3 === 0
    const body = {
      model: 'tiny6',
      ...(isChat ? { messages: [{ role: 'user', content: prompt }] } : { prompt }),
      max_tokens: MIN_TOKENS + ((at * 17) % MORE_TOKENS),
      ignore_eos: true,
    }
    const path = isChat ? ('/v1/chat/completions' as const) : ('/v1/completions' as const)
    return [
      { name: `${id} greedy`, path, body: { ...body, temperature: 0 } },
      { name: `${id} seed ${at}`, path, body: { ...body, temperature: 0.9, top_p: 0.95, seed: at } },
    ]
  })
}

export async function knownAnswers(): Promise<KnownAnswer[]> {
  const flags = ['worker', '--backend', 'tiny', '--port', '0', '--no-prefix-caching', '--json-ready']
  const child = spawn(process.execPath, [PROGRAM, ...flags, '--log-level', 'warn'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const end = () => child.kill('SIGKILL')
  process.on('exit', end)
  try {
    const [line] = (await once(createInterface({ input: child.stdout }), 'line')) as [string]
    const { url } = JSON.parse(line) as { url: string }
    return await Promise.all(requests().map(request => answerTo(url, request)))
  } finally {
    end()
    process.off('exit', end)
  }
}

async function answerTo(
  url: string,
  request: Pick<KnownAnswer, 'name' | 'path' | 'body'>,
): Promise<KnownAnswer> {
  const response = await fetch(`${url}${request.path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ ...request.body, return_token_ids: true }),
  })
  if (!response.ok) throw new Error(`${request.name}: ${response.status} ${await response.text()}`)
  const { choices, usage } = (await response.json()) as {
    choices: { text?: string; message?: { content: string }; token_ids: number[]; finish_reason: string }[]
    usage: { prompt_tokens: number }
  }
  const { text, message, token_ids, finish_reason } = choices[0]!
  return {
    ...request,
    ids: token_ids,
    text: text ?? message!.content,
    finish: finish_reason,
    promptTokens: usage.prompt_tokens,
  }
}
