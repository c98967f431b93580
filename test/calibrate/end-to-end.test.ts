/**
 * From prompts to a simulation with the real program: worker, calibrate, fit, simulate; also interrupted and
 * resumed.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, afterEach, describe, expect, it } from 'vitest'
import { openTrace, type Trace, withTrace } from '../../src/trace/trace.ts'
import { chancesOf, chooseExperts } from '../../src/worker/replay/choose.ts'
import { drawBits, follow, rootOf } from '../../src/worker/replay/fingerprint.ts'
import { replayTokenizer } from '../../src/worker/replay/tokenizer.ts'
import { shipped } from '../data.ts'
import { killAll, PROGRAM, startWorkerProcess } from '../worker/processes.ts'
import { type CapturingServer, PROMPTS, respond, textOf, workshop } from './support.ts'

const { folder, given, serve, end } = workshop()
afterEach(async () => {
  await end()
  await killAll()
})
afterAll(() => end(true))

interface Ended {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly out: string
  readonly err: string
}

function start(
  args: readonly string[],
  prefix: readonly string[] = [],
): { child: ReturnType<typeof spawn>; ended: Promise<Ended> } {
  const [command, ...rest] = [...prefix, process.execPath, PROGRAM, ...args]
  const child = spawn(command!, rest, { stdio: ['ignore', 'pipe', 'pipe'] })
  let [out, err] = ['', '']
  child.stdout!.on('data', chunk => (out += String(chunk)))
  child.stderr!.on('data', chunk => (err += String(chunk)))
  const ended = once(child, 'close').then(([code, signal]) => ({ code, signal, out, err }) as Ended)
  return { child, ended }
}
const eldr = (...args: string[]) => start(args).ended

const WORDS =
  'the of and to in that for was with be by on not he but at are this have from or had an they which one you were all she'.split(
    ' ',
  )
/**
 * The first sixteen tokens select the replayed row and differ between prompts. Some prompts are longer than a
 * step of the worker.
 */
const wordy = (i: number) =>
  Array.from(
    { length: 20 + ((i * 37) % 90) },
    (_, w) => WORDS[(i * 7 + w * (1 + (i % 5)) + ((i * w) >> 3)) % WORDS.length],
  ).join(' ')

/**
 * The experts that the worker must report for a prompt, computed from the trace without the worker's code.
 */
async function replayed(trace: Trace, ids: Int32Array, steps: number) {
  const { layers, experts, topK } = trace
  const name = [trace.model, trace.workload, trace.split, trace.requests, layers, experts, topK].join(' ')
  const hash = rootOf(name)
  for (let i = 0; i < Math.min(16, ids.length); i++) follow(hash, 0, ids[i]!, hash, 0)
  const row = drawBits(hash[0]!, hash[1]!, 0) % trace.requests
  const chances = chancesOf(await trace.prefillCounts(row, row + 1), layers, experts, topK)
  const [state, chosen, counts] = [
    rootOf(`${name} ${row}`),
    new Uint16Array(layers * topK),
    new Uint16Array(layers * experts),
  ]
  for (const id of ids) {
    follow(state, 0, id, state, 0)
    chooseExperts(chances, state[0]!, state[1]!, chosen)
    chosen.forEach((expert, i) => counts[Math.floor(i / topK) * experts + expert]!++)
  }
  return { counts, decode: [...(await trace.decodeExpertIds(row, row + 1))].slice(0, steps * layers * topK) }
}

it.each(['3000000', '86400.1', '0.0001'])(
  'rejects a timeout of %s s, which no timer supports',
  async timeout => {
    const { code, err } = await eldr(
      'calibrate',
      '--url',
      'http://127.0.0.1:9',
      '--prompts',
      'p',
      '-o',
      'o',
      '--timeout',
      timeout,
    )
    expect([code, /Expected seconds from 0.001 to 86400/.test(err)]).toEqual([2, true])
  },
)

describe('calibration of an embedded worker', () => {
  it('captures exactly the experts that the worker replays, and works with fit and simulate', async () => {
    const source = shipped('tiny6-long-task.evaluation')
    const worker = await startWorkerProcess(
      '--trace',
      source,
      '--speed',
      'max',
      '--recent-half-life',
      '64',
      '--max-num-batched-tokens',
      '64',
    )
    const texts = Array.from({ length: 60 }, (_, i) => wordy(i))
    const chats = (i: number) => i % 6 === 0
    const paths = given(
      texts.map((text, i) => ({
        ...(chats(i) ? { messages: [{ role: 'user', content: text }] } : { prompt: text }),
        domain: `d${i % 3}`,
      })),
    )
    const { code, out, err } = await eldr(
      'calibrate',
      '--url',
      worker.url,
      '--prompts',
      paths.prompts,
      '-o',
      paths.out,
      '--holdout',
      '0.4',
      '--steps',
      '40',
      '--json',
      '--quiet',
    )
    expect([code, err]).toEqual([0, ''])
    const result = JSON.parse(out) as {
      captured: object
      files: object
      skipped: unknown[]
      halfLife: number
      seconds: number
    }
    expect(result).toMatchObject({
      model: 'tiny6',
      prompts: 60,
      captured: { calibration: 36, evaluation: 24 },
      skipped: [],
      halfLife: 64,
      files: { calibration: paths.out, evaluation: paths.evaluation },
    })
    expect(await worker.leftovers()).toEqual([])

    const trace = await openTrace(source)
    const known = new Map<string, { decode: number[]; at: number }>()
    for (const [i, text] of texts.entries()) {
      const ids = chats(i)
        ? replayTokenizer.chat([{ role: 'user', content: text }])
        : replayTokenizer.encode(text)
      const { counts, decode } = await replayed(trace, ids, 40)
      known.set(counts.join(), { decode, at: i })
    }
    await trace.close()
    expect(known.size).toBe(60)
    let seen = 0
    for (const path of [paths.out, paths.evaluation])
      await withTrace(path, async made => {
        const [domain, counted] = [(await made.domain())!, await made.decodeCounts()]
        const cells = made.layers * made.experts
        let before = -1
        for (let row = 0; row < made.requests; row++, seen++) {
          const { decode, at } = known.get((await made.prefillCounts(row, row + 1)).join())!
          expect([made.domains[domain[row]!], at > before]).toEqual([`d${at % 3}`, true])
          before = at
          const counts = new Uint16Array(cells)
          decode.forEach(
            (expert, i) => counts[(Math.floor(i / made.topK) % made.layers) * made.experts + expert]!++,
          )
          expect(counted.slice(row * cells, (row + 1) * cells)).toEqual(counts)
          const ids = made.has('decode_expert_ids') ? [...(await made.decodeExpertIds(row, row + 1))] : decode
          expect(ids).toEqual(decode)
        }
      })
    expect(seen).toBe(60)

    const artifact = join(folder, 'a.artifact.safetensors')
    const fit = await eldr('fit', paths.out, '-k', '4', '-o', artifact, '--json', '--quiet')
    expect([fit.code, fit.err]).toEqual([0, ''])
    const fitted = JSON.parse(fit.out) as { clusters: unknown[]; transforms: { name: string; rho: number }[] }
    expect(fitted.clusters).toHaveLength(4)
    expect(fitted.transforms.find(({ name }) => name === 'recent')!.rho).toBeGreaterThan(0.3)
    const sim = await eldr(
      'simulate',
      '--trace',
      paths.evaluation,
      '--artifact',
      artifact,
      '--topology',
      '1P4D',
      '--rates',
      '40',
      '--requests',
      '100',
      '--seeds',
      '1',
      '--json',
      '--quiet',
    )
    expect([sim.code, sim.err]).toEqual([0, ''])
    expect(sim.out).toContain('"eldr"')
  })

  it('fails with a clear message on a decode worker and on a gateway, which forwards no counts', async () => {
    const worker = await startWorkerProcess('--role', 'decode', '--speed', 'max')
    const paths = given(PROMPTS)
    const { code, err } = await eldr(
      'calibrate',
      '--url',
      worker.url,
      '--prompts',
      paths.prompts,
      '--out',
      paths.out,
    )
    expect([code, /role decode/.test(err), err.includes('[ELDR_ENDPOINT_FAILED]')]).toEqual([1, true, true])
    const plain = await serve((_, response) =>
      respond(response, 200, { choices: [{ text: 'hello' }], kv_transfer_params: null }),
    )
    const second = await eldr('calibrate', '--url', plain.url, '--prompts', paths.prompts, '--out', paths.out)
    expect(second.err.replace(/\s+/g, ' ')).toMatch(/not of a gateway.*\[ELDR_CAPTURE_MISSING\]/)
  })

  it('skips prompts longer than the context', async () => {
    const worker = await startWorkerProcess('--speed', 'max', '--max-model-len', '64')
    const paths = given([{ prompt: wordy(1) }, { prompt: WORDS.slice(0, 8).join(' ') }, { prompt: wordy(2) }])
    const { code, out } = await eldr(
      'calibrate',
      '--url',
      worker.url,
      '--prompts',
      paths.prompts,
      '--out',
      paths.out,
      '--steps',
      '8',
    )
    expect(code).toBe(0)
    expect(out).toMatch(/calibration .*1 request\n.*skipped 2 prompts, too long for the model: line 1, 3/)
  })
})

describe('interrupted calibration', () => {
  const args = (server: CapturingServer, paths: ReturnType<typeof given>) => [
    'calibrate',
    '--url',
    server.url,
    '--prompts',
    paths.prompts,
    '--out',
    paths.out,
    '--holdout',
    '0.3',
    '--steps',
    '5',
    '--concurrency',
    '2',
    '--retries',
    '0',
  ]
  const reference = async () => {
    const [server, paths] = [await serve(), given(PROMPTS)]
    expect((await eldr(...args(server, paths), '--quiet')).code).toBe(0)
    return paths
  }

  it.each(['SIGINT', 'SIGTERM', 'SIGKILL'] as const)(
    'by %s resumes with the same command, sends nothing twice and writes the same bytes',
    async signal => {
      const whole = await reference()
      // At a concurrency of two, five are in the journal when two more wait.
      const held: (() => void)[] = []
      let both: () => void
      const waiting = new Promise<void>(resolve => (both = resolve))
      const server = await serve(async (_, response, number) => {
        if (number < 5) return false
        await new Promise<void>(resolve => {
          response.on('close', resolve)
          if (held.push(resolve) === 2) both()
        })
        return true
      })
      const paths = given(PROMPTS)
      const { child, ended } = start(args(server, paths))
      await waiting
      child.kill(signal)
      const stopped = await ended
      expect([stopped.code, stopped.signal]).toEqual([null, signal])
      // A killed process prints nothing.
      expect(stopped.err.includes('Run the same command again to resume.')).toBe(signal !== 'SIGKILL')
      expect([existsSync(paths.out), existsSync(`${paths.out}.journal`)]).toEqual([false, true])
      // As if killed while writing: append half a record.
      if (signal === 'SIGKILL')
        writeFileSync(`${paths.out}.journal`, Buffer.from([200, 0, 0, 0, 1, 2, 3]), { flag: 'a' })
      const back = await serve()
      const { code, out } = await eldr(...args(back, paths).map(arg => (arg === server.url ? back.url : arg)))
      expect([code, /7 prompts in .*, 5 resumed/.test(out)]).toEqual([0, true])
      expect(
        back.asked.map(textOf).filter(text => server.asked.slice(0, 5).map(textOf).includes(text)),
      ).toEqual([])
      for (const name of ['out', 'evaluation'] as const)
        expect(readFileSync(paths[name])).toEqual(readFileSync(whole[name]))
      expect([`${paths.out}.journal`, `${paths.out}.journal.lock`].filter(existsSync)).toEqual([])
    },
  )

  it.skipIf(process.platform === 'win32')(
    'by a full disk keeps complete records, and resumes when there is space',
    async () => {
      const whole = await reference()
      const [server, paths] = [await serve(), given(PROMPTS)]
      // Files may have at most 1 KiB: one write is truncated within a record, and the next one fails.
      const full = await start(args(server, paths), ['bash', '-c', 'ulimit -f 1; exec "$@"', 'bash']).ended
      expect([
        full.code,
        full.err.includes('[ELDR_FILE_UNWRITABLE]'),
        /file too large|no space/.test(full.err),
      ]).toEqual([1, true, true])
      expect(statSync(`${paths.out}.journal`).size).toBeLessThanOrEqual(1024)
      const asked = server.asked.length
      const { code, out } = await eldr(...args(server, paths))
      expect([code, / [1-9]\d* resumed/.test(out)]).toEqual([0, true])
      expect(server.asked.length - asked).toBeLessThan(12)
      for (const name of ['out', 'evaluation'] as const)
        expect(readFileSync(paths[name])).toEqual(readFileSync(whole[name]))
    },
  )

  it('rejects a second process on the same journal', async () => {
    let arrived: () => void
    const first = new Promise<void>(resolve => (arrived = resolve))
    const server = await serve((_, response) => {
      arrived()
      return new Promise<true>(resolve => response.on('close', () => resolve(true)))
    })
    const paths = given(PROMPTS)
    const { child, ended } = start(args(server, paths))
    await first
    const second = await eldr(...args(server, paths))
    expect([second.code, /a lock held by process \d+/.test(second.err.replace(/\s+/g, ' '))]).toEqual([
      1,
      true,
    ])
    child.kill('SIGINT')
    await ended
  })
})

describe('eldr calibrate', () => {
  it.each([
    [['--holdout', '1.5'], /above 0 and below 1/],
    [['--holdout-out', 'x'], /--holdout-out without --holdout/],
    [['--header', 'nonsense'], /such as "X-Team: search"/],
    [['--steps', '0'], /whole number from 1/],
    [['--api', 'soap'], /auto, completions, chat/],
    [['--url', 'ftp://x'], /http or https/],
  ])('rejects wrong usage with exit code 2: %j', async (more, message) => {
    const paths = given(PROMPTS)
    const { code, err } = await eldr(
      'calibrate',
      '--url',
      'http://127.0.0.1:9',
      '--prompts',
      paths.prompts,
      '--out',
      paths.out,
      ...more,
    )
    expect([code, err]).toEqual([2, expect.stringMatching(message)])
  })

  it('does not overwrite its prompts', async () => {
    const paths = given(PROMPTS)
    const { code, err } = await eldr(
      'calibrate',
      '--url',
      'http://127.0.0.1:9',
      '--prompts',
      paths.prompts,
      '--out',
      paths.prompts,
      '--force',
    )
    expect([code, /a separate file/.test(err)]).toEqual([2, true])
  })
})
