/**
 * Every way in which a calibration can fail and what it leaves behind, in this process against a real server.
 */
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest'
import { journalOf } from '../../src/calibrate/calibrate.ts'
import { firstModel, openEndpoint } from '../../src/load/endpoint.ts'
import { withTrace } from '../../src/trace/trace.ts'
import { failure } from '../trace-support.ts'
import {
  type RequestBody,
  capturing,
  eldrOf,
  PROMPTS,
  respond,
  run,
  SHAPE,
  textOf,
  workshop,
} from './support.ts'

const { given, serve, end } = workshop()
afterEach(() => end())
afterAll(() => end(true))
const one = (text: string) => given([{ prompt: text }])

describe('calibration reports why it cannot continue', () => {
  const answers = (eldr: unknown) => (_: RequestBody, response: Parameters<typeof respond>[0]) =>
    respond(response, 200, { choices: [], kv_transfer_params: eldr === undefined ? null : { eldr } })

  it.each([
    ['no plugin', undefined, /without kv_transfer_params.eldr/, 'ELDR_CAPTURE_MISSING'],
    [
      'capture off',
      { off: 'torch.compile on a CPU' },
      /switched off \("torch.compile on a CPU"\).*restart the server/,
      'ELDR_CAPTURE_MISSING',
    ],
    ['an empty hand-off', {}, /empty eldr object/, 'ELDR_CAPTURE_MISSING'],
    [
      'no decode ids',
      {
        ...eldrOf({ prompt: 'ab', max_tokens: 6 } as RequestBody),
        decode: undefined,
        decode_off: 'decode ids are not kept with speculative decoding',
      },
      /no decode ids \("decode ids are not kept/,
      'ELDR_CAPTURE_MISSING',
    ],
    [
      'another version',
      { ...eldrOf({ prompt: 'ab', max_tokens: 6 } as RequestBody), v: 2 },
      /wrong_version/,
      'ELDR_ENDPOINT_FAILED',
    ],
    [
      'invalid shape',
      { ...eldrOf({ prompt: 'ab', max_tokens: 6 } as RequestBody), layers: 0 },
      /an invalid model shape/,
      'ELDR_ENDPOINT_FAILED',
    ],
    [
      'invalid sums',
      { ...eldrOf({ prompt: 'ab', max_tokens: 6 } as RequestBody), covered: 1 },
      /bad_sums/,
      'ELDR_ENDPOINT_FAILED',
    ],
    [
      'more steps than requested',
      eldrOf({ prompt: 'ab', max_tokens: 9 } as RequestBody),
      /invalid decode ids/,
      'ELDR_ENDPOINT_FAILED',
    ],
  ])('%s', async (_, eldr, message, code) => {
    const server = await serve(answers(eldr))
    const paths = given(PROMPTS)
    const error = await failure('', () => run(server.url, paths))
    expect(error.message).toMatch(message)
    expect(error.code).toBe(code)
    // The first prompt shows it: the others are not sent.
    expect(server.asked).toHaveLength(1)
    // Nothing is left, not even an empty journal.
    expect([paths.out, journalOf(paths.out)].filter(existsSync)).toEqual([])
  })

  it('an error of one request immediately ends those that wait', async () => {
    const closed: number[] = []
    const server = await serve((_, response, number) => {
      if (number === 4) return respond(response, 401, { error: { message: 'the key has run out' } })
      if (number === 0) return false
      return new Promise<true>(resolve => {
        response.on('close', () => {
          closed.push(number)
          resolve(true)
        })
      })
    })
    const error = await failure('', () =>
      run(server.url, given(PROMPTS), { concurrency: 4, timeoutMs: 600_000 }),
    )
    expect(error.message).toMatch(/the key has run out/)
    await vi.waitFor(() => expect(closed.toSorted()).toEqual([1, 2, 3]))
    expect(server.asked).toHaveLength(5)
  })

  it('layers that change during the run; the journal is kept', async () => {
    const server = await serve((body, response, number) =>
      number < 6
        ? false
        : respond(response, 200, { kv_transfer_params: { eldr: eldrOf(body, { ...SHAPE, layers: 4 }) } }),
    )
    const paths = given(PROMPTS)
    const error = await failure('', () => run(server.url, paths, { concurrency: 2 }))
    expect([error.code, /found 4 layers.*expected 3 layers/.test(error.message)]).toEqual([
      'ELDR_CAPTURE_CHANGED',
      true,
    ])
    expect(existsSync(journalOf(paths.out))).toBe(true)
  })

  it.each([
    [401, { error: { message: 'no key' } }, /status 401 for line 1.*no key.*--api-key/],
    [404, { error: { message: 'The model `synthetic` does not exist.' } }, /status 404.*does not exist/],
    [501, { error: { message: 'This worker has the role decode' } }, /status 501.*role decode/],
    [
      400,
      { error: { message: 'roles must alternate' } },
      /status 400 for line 1.*roles must alternate.*--skip-refused/,
    ],
    [200, '<html>', /that is not JSON/],
  ])('status %i', async (status, body, message) => {
    const server = await serve((_, response) => respond(response, status, body))
    const error = await failure('', () => run(server.url, given(PROMPTS), { retries: 3 }))
    expect([error.code, server.asked.length]).toEqual(['ELDR_ENDPOINT_FAILED', 1])
    expect(error.message).toMatch(message)
  })

  it('an unreachable server', async () => {
    const server = await capturing()
    await server.stop()
    expect((await failure('', () => run(server.url, one('a')))).code).toBe('ELDR_ENDPOINT_UNREACHABLE')
  })

  it.each([
    ['{"prompt": "a"}\n{"prompt"', /in line 2/],
    ['{"prompt": "a"}\n\n{"text": "b"}', /the key "text" in line 3/],
    ['{"prompt": "a", "domain": "a,b"}', /the domain "a,b" in line 1, expected a name without commas/],
    ['{"prompt": "a", "domain": 3}', /the domain 3 in line 1/],
    ['', /an empty file/],
    ['\n \n', /an empty file/],
    [
      `{"prompt": "a"}\n{"prompt": "b", "domain": ${'['.repeat(100_000)}${']'.repeat(100_000)}}`,
      /the domain a list too deep.* in line 2/,
    ],
    [
      `{"messages": [{"role": "user", "content": ${'['.repeat(100_000)}${']'.repeat(100_000)}}]}`,
      /nested too deeply in line 1/,
    ],
  ])('invalid prompts, before anything is sent (%#)', async (text, message) => {
    const server = await serve()
    const error = await failure('', () => run(server.url, given([text])))
    expect(error.message).toMatch(message)
    expect([error.code, server.asked.length]).toEqual(['ELDR_FILE_WRONG_KIND', 0])
  })

  it('messages with --api completions, and more domains than fit into a byte', async () => {
    const server = await serve()
    const chat = given([{ messages: [{ role: 'user', content: 'a' }] }])
    expect((await failure('', () => run(server.url, chat, { api: 'completions' }))).message).toMatch(
      /messages in line 1/,
    )
    const many = given(Array.from({ length: 256 }, (_, i) => ({ prompt: `p${i}`, domain: `d${i}` })))
    expect((await failure('', () => run(server.url, many))).message).toMatch(/256 different domains/)
    await run(server.url, many, { limit: 255 })
    expect(server.asked).toHaveLength(255)
  })

  it('a trace that appeared during the run, which is not overwritten, and no prompt is sent twice', async () => {
    const paths = given(PROMPTS)
    const server = await serve((_, __, number) =>
      number === 5 ? writeFileSync(paths.out, 'mine') : undefined,
    )
    expect((await failure(paths.out, () => run(server.url, paths))).code).toBe('ELDR_FILE_EXISTS')
    expect(readFileSync(paths.out, 'utf8')).toBe('mine')
    expect((await run(server.url, paths, { force: true })).resumed).toBe(12)
    expect(server.asked).toHaveLength(12)
  })

  it('an existing trace, except with --force', async () => {
    const server = await serve()
    const paths = given(PROMPTS)
    const more = { holdout: 0.5, holdoutOut: paths.evaluation }
    for (const file of [paths.out, paths.evaluation]) {
      writeFileSync(file, 'mine')
      expect((await failure(file, () => run(server.url, paths, more))).code).toBe('ELDR_FILE_EXISTS')
      expect(readFileSync(file, 'utf8')).toBe('mine')
      rmSync(file)
    }
    writeFileSync(paths.evaluation, 'mine')
    expect(server.asked).toEqual([])
    await run(server.url, paths, { ...more, force: true })
    await withTrace(paths.evaluation, async ({ requests }) => expect(requests).toBe(6))
  })

  it('too few prompts for a hold-out', async () => {
    const server = await serve()
    const paths = one('a')
    const error = await failure('', () =>
      run(server.url, paths, { holdout: 0.3, holdoutOut: paths.evaluation }),
    )
    expect([error.code, server.asked.length]).toEqual(['ELDR_TRACE_TOO_SMALL', 0])
  })
})

describe('skipped prompts', () => {
  it('are counted and listed by line: too long, not covered, and rejected ones with --skip-refused', async () => {
    const too =
      "This model's maximum context length is 64 tokens. However, you requested 6 output tokens and your prompt contains 70 input tokens"
    const server = await serve((body, response) => {
      const number = Number(/number (\d+)/.exec(textOf(body))![1])
      if (number === 3 || number === 4) return respond(response, 400, { error: { message: too } })
      if (number === 6) return respond(response, 413, 'Payload Too Large')
      if (number === 7) return respond(response, 400, { error: { message: 'a strange word' } })
      if (number !== 9) return false
      const half = 'x'.repeat(Math.floor(textOf(body).length / 2))
      return respond(response, 200, {
        kv_transfer_params: { eldr: { ...eldrOf({ ...body, prompt: half }), tokens: textOf(body).length } },
      })
    })
    const said: string[] = []
    const onSkip = (line: number, why: string) => void said.push(`${line} ${why.slice(0, 11).trim()}`)
    const paths = given(PROMPTS)
    const result = await run(server.url, paths, { skipRefused: true, onSkip })
    expect(result.skipped).toEqual([
      { reason: 'too_long', lines: [4, 5, 7] },
      { reason: 'not_covered', lines: [10] },
      { reason: 'refused', lines: [8] },
    ])
    expect(said.toSorted()).toEqual(
      ['10 experts kno', "4 This model'", "5 This model'", '7 Payload Too', '8 a strange w'].toSorted(),
    )
    expect(result.captured.calibration).toBe(7)
    const kept = given(PROMPTS)
    expect((await run(server.url, kept, { skipRefused: true, minCovered: 0.4 })).captured.calibration).toBe(8)
  })

  it('leave no trace if all are skipped', async () => {
    const server = await serve((_, response) =>
      respond(response, 400, {
        error: { message: 'The decoder prompt (length 90) is longer than the maximum model length of 64.' },
      }),
    )
    const paths = given(PROMPTS)
    expect((await failure(paths.out, () => run(server.url, paths))).code).toBe('ELDR_TRACE_TOO_SMALL')
    // There is also no journal of skipped prompts only, which would block the corrected command.
    expect([paths.out, journalOf(paths.out)].filter(existsSync)).toEqual([])
  })
})

describe('too many steps for any prompt', () => {
  it.each([
    'max_tokens=9001 cannot be greater than max_model_len=max_total_tokens=64. Please request fewer output tokens.',
    "'max_tokens' or 'max_completion_tokens' is too large: 9001. This model's maximum context length is 64 tokens and your request has 5 input tokens (9001 > 64 - 5).",
    "This model's maximum context length is 64 tokens. However, you requested 9001 output tokens and your prompt contains 5 input tokens.",
  ])('stop the run at the first prompt: %s', async said => {
    const server = await serve((_, response) => respond(response, 400, { error: { message: said } }))
    const paths = given(PROMPTS)
    const error = await failure('', () => run(server.url, paths, { steps: 9000, skipRefused: true }))
    expect([error.code, server.asked.length]).toEqual(['ELDR_ENDPOINT_FAILED', 1])
    expect(error.message).toMatch(/which any prompt would get.*fewer --steps/)
    expect(existsSync(journalOf(paths.out))).toBe(false)
  })
})

describe('unavailable server', () => {
  it('is distinguished from a busy one, and the message names no missing journal', async () => {
    const busy = await serve((_, response) => respond(response, 429, { error: { message: 'queue full' } }))
    const paths = given(PROMPTS)
    const error = await failure('', () => run(busy.url, paths))
    expect(error.message).toMatch(
      /a server that accepts no requests at the moment \(line 1 sent once: status 429: queue full\).*Nothing has been captured yet/,
    )
    expect(error.message).not.toMatch(/journal/)
    const gone = await serve((_, response) => (response.destroy(), true))
    expect((await failure('', () => run(gone.url, paths))).message).toMatch(/no response from the server/)
    expect(existsSync(journalOf(paths.out))).toBe(false)
  })

  it('is asked again for its model', async () => {
    let looks = 0
    const server = createServer((_, response) => {
      looks++
      if (looks === 1) return void response.destroy()
      if (looks === 2) return void respond(response, 503, { error: { message: 'starting' } })
      response.end(looks === 3 ? '{"data":[{"id":"synthetic"}]}' : 'x'.repeat((1 << 20) + 1))
    })
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
    const endpoint = openEndpoint({
      url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
      api: 'completions',
    })
    try {
      const failures: number[] = []
      expect(await firstModel(endpoint, async count => failures.push(count) > 0)).toBe('synthetic')
      expect(failures).toEqual([0, 1])
      await expect(firstModel(endpoint)).rejects.toThrow(/more than 1048576 bytes/)
    } finally {
      await endpoint.close()
      server.closeAllConnections()
      server.close()
    }
  })

  it('gets retries, and nothing is lost', async () => {
    const server = await serve((_, response, number) => {
      if (number === 2) return respond(response, 503, { error: { message: 'starting' } })
      if (number === 4) return (response.destroy(), true)
      if (number === 6) return (response.writeHead(429, { 'retry-after': '0.01' }).end('{}'), true)
      return false
    })
    const waits: number[] = []
    const paths = given(PROMPTS)
    await run(server.url, paths, { retries: 2, onProgress: ({ waiting }) => void waits.push(waiting) })
    expect(server.asked).toHaveLength(15)
    expect(Math.max(...waits)).toBeGreaterThan(0)
    await withTrace(paths.out, async ({ requests }) => expect(requests).toBe(12))
  })

  it('stops the run after the retries, and the same command resumes: same bytes, nothing sent twice', async () => {
    const [whole, paths] = [given(PROMPTS), given(PROMPTS)]
    const good = await serve()
    await run(good.url, whole, { holdout: 0.3, holdoutOut: whole.evaluation })
    const bad = await serve((_, response, number) => (number < 7 ? false : (response.destroy(), true)))
    const more = { holdout: 0.3, holdoutOut: paths.evaluation }
    const error = await failure(journalOf(paths.out), () =>
      run(bad.url, paths, { ...more, concurrency: 1, retries: 1 }),
    )
    expect(error.code).toBe('ELDR_CALIBRATION_STOPPED')
    expect(error.message).toMatch(/line 8 sent 2 times.*7 of 12 prompts are in.*run the same command again/)
    // As if stopped between writing the two traces.
    writeFileSync(paths.evaluation, 'the first of two')
    const back = await serve()
    const result = await run(back.url, paths, more)
    expect([result.resumed, back.asked.length]).toEqual([7, 5])
    expect(readFileSync(paths.out)).toEqual(readFileSync(whole.out))
    expect(readFileSync(paths.evaluation)).toEqual(readFileSync(whole.evaluation))
    expect(existsSync(journalOf(paths.out))).toBe(false)
  })

  it('cannot be resumed by another command: other prompts, other options, another model', async () => {
    const bad = await serve((_, response, number) => (number < 3 ? false : (response.destroy(), true)))
    const paths = given(PROMPTS)
    await failure('', () => run(bad.url, paths, { concurrency: 1 }))
    const good = await serve()
    for (const [more, message] of [
      [{ steps: 6 }, /steps 5 in the journal/],
      [{ model: 'x' }, /model "synthetic"/],
      [{ seed: 4 }, /seed 0/],
      [{ temperature: 1 }, /temperature 0/],
    ] as const) {
      const error = await failure(journalOf(paths.out), () => run(good.url, paths, more))
      expect([error.code, message.test(error.message)]).toEqual(['ELDR_JOURNAL_MISMATCH', true])
    }
    const before = readFileSync(paths.prompts)
    writeFileSync(paths.prompts, Buffer.concat([before, Buffer.from('\n{"prompt": "one more"}')]))
    expect((await failure('', () => run(good.url, paths))).message).toMatch(/prompts_sha256/)
    expect(good.asked).toEqual([])
    writeFileSync(paths.prompts, before)
    expect((await run(good.url, paths)).resumed).toBe(3)
  })

  it('that is too slow fails after the timeout', async () => {
    const server = await serve(() => new Promise(() => undefined))
    const error = await failure('', () => run(server.url, one('a'), { timeoutMs: 50 }))
    expect([error.code, /no response within 0.05 s/.test(error.message)]).toEqual([
      'ELDR_CALIBRATION_STOPPED',
      true,
    ])
  })
})

describe('prompt file that changes during the run', () => {
  it('is detected', async () => {
    const paths = given(PROMPTS)
    const server = await serve((_, __, number) => {
      if (number === 2)
        writeFileSync(paths.prompts, readFileSync(paths.prompts, 'utf8').replaceAll('number', 'NUMBER'))
    })
    expect((await failure(paths.prompts, () => run(server.url, paths, { concurrency: 1 }))).message).toMatch(
      /line \d+ changed during the run/,
    )
  })
})
