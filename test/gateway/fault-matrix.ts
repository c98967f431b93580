/**
 * Every fault of a worker, on each leg, for streams and for whole responses: what the client gets if the
 * worker is the only one, and if there is another. Nothing is left over in any case. The same for every
 * engine.
 */
import { afterAll, describe, expect, it } from 'vitest'
import type { EngineAdapter } from '../../src/gateway/engines/engine.ts'
import type { FakeWorker, Fault } from '../fake-worker/index.ts'
import { ManualClock } from '../manual-clock.ts'
import { type Cluster, eventsOf, startCluster } from './cluster.ts'
import { PooledClusters, SEVERAL_PROCESSES } from './pooled-clusters.ts'
import {
  eventually,
  metric,
  stopCluster,
  watchTicketMetrics,
  type TicketWatch,
  watchTickets,
} from './watching.ts'

/** Much longer than a healthy fake worker takes. In one process it passes on a clock that the test moves. */
const TIMEOUT_MS = SEVERAL_PROCESSES ? 3_000 : 5_000
const STEP_MS = 50
const TIMEOUTS = {
  prefillMs: TIMEOUT_MS,
  firstTokenMs: TIMEOUT_MS,
  betweenTokensMs: TIMEOUT_MS,
  connectMs: TIMEOUT_MS,
}
/** In one process tests share its clock, so they run one after the other. */
const CONCURRENT = { concurrent: SEVERAL_PROCESSES }
const TOKENS = { stream: 8, whole: 2 }

type Leg = 'prefill' | 'decode'
type Way = 'stream' | 'whole'

type Run = ReturnType<typeof runOf>

const pool = new PooledClusters()

/** The engine under test; undefined for the configured one. */
let engine: EngineAdapter | undefined

/** Runs a test with a cluster of its own. */
async function withWorkers(workers: number, body: (run: Run) => Promise<void>): Promise<void> {
  const routing = { policy: 'round_robin', prefillPolicy: 'round_robin' }
  if (SEVERAL_PROCESSES)
    return pool.borrow(workers, { config: { timeouts: TIMEOUTS, routing } }, ({ cluster, tries, counted }) =>
      body(runOf(cluster, watchTicketMetrics(cluster), tries, counted)),
    )
  const clock = ManualClock.install()
  const health = { intervalMs: 600_000, timeoutMs: 600_000 }
  const config = { timeouts: TIMEOUTS, routing, health }
  const protocol = engine === undefined ? 'vllm' : 'push'
  const cluster = await startCluster({
    prefill: workers,
    decode: workers,
    engine,
    prefillOptions: { protocol },
    decodeOptions: { protocol },
    config,
  })
  const run = runOf(
    cluster,
    watchTickets(cluster),
    ({ counters }, leg) => counters[leg],
    (name, labels) => metric(cluster, name, labels),
  )
  try {
    await clock.during(body(run), STEP_MS)
  } finally {
    clock.uninstall()
    await stopCluster(cluster)
  }
}

type Tickets = Pick<TicketWatch, 'settled'> & Partial<TicketWatch>
/** Checks the dispatches, if the gateway runs in this process. */
function inside({ dispatches }: Tickets, look: (dispatches: TicketWatch['dispatches']) => void): void {
  if (dispatches !== undefined) look(dispatches)
}

type Counted = (name: string, labels?: Record<string, string>) => Promise<number>

function runOf(
  cluster: Cluster,
  tickets: Tickets,
  tries: (worker: FakeWorker, leg: Leg) => number,
  counted: Counted,
) {
  const workersOf = (leg: Leg) => (leg === 'prefill' ? cluster.prefills : cluster.decodes)
  return {
    tickets,
    workersOf,
    triesBy: tries,
    triesOf: (leg: Leg) => workersOf(leg).reduce((sum, worker) => sum + tries(worker, leg), 0),
    counted,
    ask: (way: Way, more: object = {}) =>
      cluster.post('/v1/completions', {
        prompt: 'Once upon a time',
        max_tokens: TOKENS[way],
        stream: way === 'stream',
        ...more,
      }),
    /** Only the first request to any of these workers gets the fault. */
    strikeOnce(leg: Leg, fault: Fault): void {
      let struck = false
      for (const worker of workersOf(leg))
        worker.fail(fault, { match: ({ isGeneration }) => isGeneration && !struck && (struck = true) })
    },
  }
}

interface Case {
  readonly name: string
  readonly fault: Fault
  /** Status and code that the client gets if there is no other worker; 'served' if it is no failure. */
  readonly alone: readonly [status: number, code: string] | 'served'
  /** Requests that the failing worker gets if it is the only one (default: 1). */
  readonly tries?: number
  /** The decode worker refuses the hand-off of vLLM: another worker releases it. */
  readonly refuses?: true
}

const PREFILL_FAILED = [502, 'ELDR_PREFILL_FAILED'] as const
const PREFILL_TIMEOUT = [504, 'ELDR_PREFILL_TIMEOUT'] as const
const HANDOFF_BAD = [502, 'ELDR_HANDOFF_BAD'] as const
const DECODE_FAILED = [502, 'ELDR_DECODE_FAILED'] as const
const DECODE_TIMEOUT = [504, 'ELDR_DECODE_TIMEOUT'] as const
const OVERLOADED = [429, 'ELDR_OVERLOADED'] as const

const PREFILL: Case[] = [
  {
    name: 'resets the connection immediately',
    fault: { kind: 'reset', after: 'request' },
    alone: PREFILL_FAILED,
  },
  {
    name: 'resets the connection after the headers',
    fault: { kind: 'reset', after: 'headers' },
    alone: PREFILL_FAILED,
  },
  { name: 'responds with 500', fault: { kind: 'status', status: 500 }, alone: PREFILL_FAILED },
  { name: 'responds with 503', fault: { kind: 'status', status: 503 }, alone: PREFILL_FAILED },
  { name: 'is at capacity', fault: { kind: 'status', status: 429 }, alone: OVERLOADED },
  { name: 'hangs', fault: { kind: 'hang', after: 'request' }, alone: PREFILL_TIMEOUT },
  { name: 'hangs after the headers', fault: { kind: 'hang', after: 'headers' }, alone: PREFILL_TIMEOUT },
  { name: 'sends garbage', fault: { kind: 'garbage' }, alone: PREFILL_FAILED },
  { name: 'sends half of a response', fault: { kind: 'truncate' }, alone: PREFILL_FAILED },
  {
    name: 'sends an HTML page',
    fault: { kind: 'answer', contentType: 'text/html', body: '<p>' },
    alone: HANDOFF_BAD,
  },
  {
    name: 'sends no hand-off',
    fault: { kind: 'answer', body: '{"choices":[],"kv_transfer_params":null}' },
    alone: HANDOFF_BAD,
  },
  { name: 'is slow', fault: { kind: 'slow', bytes: 300 }, alone: 'served' },
  { name: 'is too slow', fault: { kind: 'slow', bytes: 1, everyMs: STEP_MS }, alone: PREFILL_TIMEOUT },
]

/**
 * Before the first byte of a stream, or the last of a whole response. A worker that responds with 500 may
 * have lost its hand-off.
 */
const DECODE: Case[] = [
  {
    name: 'resets the connection immediately',
    fault: { kind: 'reset', after: 'request' },
    alone: DECODE_FAILED,
  },
  {
    name: 'resets the connection after the headers',
    fault: { kind: 'reset', after: 'headers' },
    alone: DECODE_FAILED,
  },
  { name: 'responds with 500', fault: { kind: 'status', status: 500 }, alone: DECODE_FAILED, tries: 3 },
  {
    name: 'responds with 503',
    fault: { kind: 'status', status: 503 },
    alone: DECODE_FAILED,
    refuses: true,
  },
  { name: 'is at capacity', fault: { kind: 'status', status: 429 }, alone: OVERLOADED, refuses: true },
  { name: 'hangs', fault: { kind: 'hang', after: 'request' }, alone: DECODE_TIMEOUT },
  { name: 'hangs after the headers', fault: { kind: 'hang', after: 'headers' }, alone: DECODE_TIMEOUT },
  { name: 'sends garbage', fault: { kind: 'garbage' }, alone: DECODE_FAILED },
  { name: 'sends half of a response', fault: { kind: 'truncate', tokens: 0 }, alone: DECODE_FAILED },
  { name: 'ends without a token', fault: { kind: 'close', tokens: 0 }, alone: DECODE_FAILED },
  {
    name: 'sends an HTML page',
    fault: { kind: 'answer', contentType: 'text/html', body: '<p>' },
    alone: DECODE_FAILED,
  },
  {
    name: 'labels its response as plain text',
    fault: { kind: 'answer', contentType: 'text/plain' },
    alone: DECODE_FAILED,
  },
  {
    name: 'labels something else as JSON',
    fault: { kind: 'answer', body: 'out of memory' },
    alone: DECODE_FAILED,
  },
  { name: 'is slow', fault: { kind: 'slow', bytes: 300 }, alone: 'served' },
  { name: 'is too slow', fault: { kind: 'slow', bytes: 1, everyMs: STEP_MS }, alone: DECODE_TIMEOUT },
]
const DECODE_STREAM: Case[] = [
  {
    name: 'sends an error event instead of a token',
    fault: { kind: 'error_event', tokens: 0 },
    alone: DECODE_FAILED,
  },
  {
    name: 'sends half of an event',
    fault: { kind: 'garbage', bytes: streamBytes('data: {"id":"cmpl') },
    alone: DECODE_FAILED,
  },
]

const BROKEN = 'ELDR_STREAM_BROKEN'
const TOKEN_EVENT = `data: {"choices":[{"text":"a"}]}\n\n`

/** Declares the tests. `adapter`: in place of the configured engine, in a single process only. */
export function faultMatrix(adapter?: EngineAdapter): void {
  engine = adapter
  /** A very large event is passed on in pieces, unless it must be cleaned. */
  const passesPieces = adapter === undefined || adapter.privateFields.event.length === 0
  afterAll(() => pool.close())

  describe.each<[Leg, Way, Case[]]>([
    ['prefill', 'stream', PREFILL],
    ['prefill', 'whole', PREFILL],
    ['decode', 'stream', [...DECODE, ...DECODE_STREAM]],
    ['decode', 'whole', DECODE],
  ])('a %s worker, asked for a %s response,', CONCURRENT, (leg, way, cases) => {
    it.each(cases)('that $name and is the only one', ({ fault, alone, tries = 1 }) =>
      withWorkers(1, async ({ tickets, workersOf, triesOf, counted, ask }) => {
        const [worker] = workersOf(leg)
        worker!.fail(fault)
        const response = await ask(way)
        if (alone === 'served') await expectServed(response, way)
        else await expectRefused(response, alone)
        await tickets.settled()
        expect(triesOf(leg)).toBe(tries)
        expect(await counted('eldr_retries_total')).toBe(tries - 1)
        const outcome =
          alone === 'served' ? 'ok' : alone[0] === 504 ? 'timeout' : alone[0] === 429 ? 'refused' : 'failed'
        expect(await counted('eldr_requests_total', { route: 'completions', outcome })).toBe(1)
        // The prompt is prefilled again only if another worker can take it; a worker at capacity has not
        // failed.
        expect(triesOf('prefill')).toBe(leg === 'prefill' ? 1 : tries)
        inside(tickets, dispatches => {
          const blamed = dispatches.filter(({ ends }) => ends[0] === 'failed')
          expect(blamed).toHaveLength(alone === 'served' || alone[0] === 429 ? 0 : tries)
          expect(new Set(blamed.map(dispatch => dispatch.leg))).toEqual(
            new Set(blamed.length > 0 ? [leg] : []),
          )
        })
      }),
    )

    it.each(cases)('that $name, and there is another', ({ fault, alone, refuses }) =>
      withWorkers(2, async ({ tickets, workersOf, triesBy, counted, ask, strikeOnce }) => {
        strikeOnce(leg, fault)
        await expectServed(await ask(way), way)
        const retried = alone === 'served' ? 0 : 1
        const released = refuses === true && engine === undefined ? 1 : 0
        await eventually(
          async () => (await counted('eldr_handoffs_released_total')) === released,
          'the hand-off released',
        )
        await tickets.settled()
        expect(
          workersOf(leg)
            .map(worker => triesBy(worker, leg))
            .toSorted(),
        ).toEqual([retried, 1 + released])
        expect(await counted('eldr_retries_total', { leg })).toBe(retried)
        expect(await counted('eldr_leg_failures_total', { leg })).toBe(retried)
      }),
    )

    it('that refuses connections and is the only one', () =>
      withWorkers(1, async ({ tickets, workersOf, counted, ask }) => {
        await workersOf(leg)[0]!.refuse()
        await expectRefused(await ask(way), leg === 'prefill' ? PREFILL_FAILED : DECODE_FAILED)
        await tickets.settled()
        expect(await counted('eldr_leg_failures_total', { leg, kind: 'connect' })).toBe(1)
      }))

    it('that refuses connections, and there is another', () =>
      withWorkers(2, async ({ tickets, workersOf, triesOf, counted, ask }) => {
        await workersOf(leg)[1]!.refuse()
        // Two requests, one for each worker.
        for (let request = 0; request < 2; request++) await expectServed(await ask(way), way)
        await tickets.settled()
        // A hand-off that no worker has received can go to the next, unless it is bound to the one that
        // failed.
        const isBound = engine?.legOrder === 'decode_before_prefill'
        expect(triesOf('prefill')).toBe(leg === 'decode' && isBound ? 3 : 2)
        // A cluster that was used before may start with the worker that refuses, and use it again before that
        // is known.
        expect(SEVERAL_PROCESSES ? [1, 2] : [1]).toContain(
          await counted('eldr_retries_total', { leg, cause: 'connect' }),
        )
      }))

    it('that responds with 400: the client gets that response, and no other worker is tried', () =>
      withWorkers(2, async ({ tickets, triesOf, counted, ask, strikeOnce }) => {
        strikeOnce(leg, { kind: 'status', status: 400, message: 'too long' })
        const response = await ask(way)
        expect([response.status, await response.json()]).toMatchObject([
          400,
          { error: { message: 'too long' } },
        ])
        // The hand-off that the decode worker did not read is released with a decode request of one token.
        const released = leg === 'decode' ? 1 : 0
        await eventually(
          async () => (await counted('eldr_handoffs_released_total')) === released,
          'the hand-off released',
        )
        await tickets.settled()
        expect(triesOf(leg)).toBe(1 + released)
        inside(tickets, dispatches =>
          expect(dispatches.findLast(dispatch => dispatch.leg === leg)!.ends).toEqual(['ignored']),
        )
      }))
  })

  it('a stream with its last event is complete, even if the response is cut after it', () =>
    withWorkers(1, async ({ tickets, workersOf, ask, counted }) => {
      workersOf('decode')[0]!.fail({
        kind: 'garbage',
        bytes: streamBytes(TOKEN_EVENT, TOKEN_EVENT, 'data: [DONE]\n\n'),
      })
      expect(await eventsOf(await ask('stream'))).toHaveLength(3)
      await tickets.settled()
      expect(await counted('eldr_requests_total', { route: 'completions', outcome: 'ok' })).toBe(1)
    }))

  describe.each([1, 2])(
    'with %i workers, a decode worker that has sent tokens and then',
    CONCURRENT,
    workers => {
      it.each<[string, Fault, events: number, code: string]>([
        ['resets the connection', { kind: 'reset', after: 'tokens', tokens: 3 }, 3, BROKEN],
        ['hangs', { kind: 'hang', after: 'tokens', tokens: 3 }, 3, 'ELDR_STREAM_STALLED'],
        ['is cut within an event', { kind: 'truncate', tokens: 3 }, 3, BROKEN],
        ['is cut after its last token', { kind: 'truncate', tokens: 8 }, 8, BROKEN],
        ['ends without an error', { kind: 'close', tokens: 3 }, 3, BROKEN],
        ['ends without [DONE] after its last token', { kind: 'close', tokens: 8 }, 8, BROKEN],
        ['sends an error event', { kind: 'error_event', tokens: 3, message: 'EngineCore died' }, 3, BROKEN],
        [
          'sends garbage',
          { kind: 'garbage', bytes: `${streamBytes(TOKEN_EVENT, TOKEN_EVENT)}no chunk` },
          2,
          BROKEN,
        ],
        [
          'sends half of an event and the end',
          { kind: 'garbage', bytes: `${streamBytes(TOKEN_EVENT, 'data: {"choices"')}0\r\n\r\n` },
          1,
          BROKEN,
        ],
        [
          'sends half of a very large event',
          { kind: 'garbage', bytes: streamBytes(TOKEN_EVENT, `data: ${'a'.repeat(100_000)}`) },
          passesPieces ? 2 : 1,
          BROKEN,
        ],
      ])('%s', (_, fault, events, code) =>
        withWorkers(workers, async ({ tickets, workersOf, triesOf, counted, ask }) => {
          for (const worker of workersOf('decode')) worker.fail(fault)
          const response = await ask('stream')
          expect(response.status).toBe(200)
          const seen = await eventsOf(response)
          expect(seen).not.toContain('[DONE]')
          expect(seen).toHaveLength(events + 1)
          const { error } = JSON.parse(seen.at(-1)!) as {
            error: { message: string; type: string; code: unknown }
          }
          expect(error).toMatchObject({ code, message: expect.any(String), type: expect.any(String) })
          expect(Object.keys(error)).toContain('param')
          await tickets.settled()
          // Never retried after the first byte, and the worker gets the blame.
          expect(triesOf('decode')).toBe(1)
          inside(tickets, dispatches =>
            expect(new Set(dispatches.map(({ leg, ends }) => [leg, ...ends].join()))).toEqual(
              new Set(['prefill,succeeded', 'decode,failed']),
            ),
          )
          expect(await counted('eldr_requests_total', { outcome: 'broken' })).toBe(1)
          expect(await counted('eldr_retries_total')).toBe(0)
        }),
      )

      it('sends [DONE] has succeeded, however its connection ends', () =>
        withWorkers(workers, async ({ tickets, workersOf, ask }) => {
          for (const worker of workersOf('decode'))
            worker.fail({ kind: 'garbage', bytes: streamBytes(TOKEN_EVENT, 'data: [DONE]\n\n') })
          expect(await eventsOf(await ask('stream'))).toEqual([TOKEN_EVENT.slice(6, -2), '[DONE]'])
          await tickets.settled()
          inside(tickets, dispatches =>
            expect(dispatches.findLast(({ leg }) => leg === 'decode')!.ends).toEqual(['succeeded']),
          )
        }))
    },
  )

  describe('a request for three choices, one of which', CONCURRENT, () => {
    const CHOICES = { n: 3, max_tokens: 6 }
    /** The first decode request gets the fault; the others continue or hang. */
    function strike({ workersOf }: Run, fault: Fault, others: 'go on' | 'wait'): void {
      workersOf('decode')[0]!.fail(fault, { times: 1 })
      if (others === 'wait') workersOf('decode')[0]!.fail({ kind: 'hang', after: 'request' })
    }

    it.each<[string, Fault, 'go on' | 'wait', code: string]>([
      ['breaks', { kind: 'reset', after: 'tokens', tokens: 2 }, 'wait', BROKEN],
      ['ends early', { kind: 'close', tokens: 2 }, 'wait', BROKEN],
      [
        'sends an error event',
        { kind: 'error_event', tokens: 2, message: 'EngineCore died' },
        'wait',
        BROKEN,
      ],
      ['hangs', { kind: 'hang', after: 'tokens', tokens: 2 }, 'go on', 'ELDR_STREAM_STALLED'],
      [
        'is not JSON',
        {
          kind: 'garbage',
          bytes: streamBytes(TOKEN_EVENT, 'data: {"choices":[nonsense]}\n\n', 'data: [DONE]\n\n'),
        },
        'go on',
        BROKEN,
      ],
    ])('%s within its stream ends the response with one error event', (_, fault, others, code) =>
      withWorkers(1, async run => {
        const { tickets, counted, ask } = run
        strike(run, fault, others)
        const events = await eventsOf(await ask('stream', CHOICES))
        expect(events).not.toContain('[DONE]')
        expect(JSON.parse(events.at(-1)!)).toMatchObject({ error: { code } })
        expect(events.filter(event => event.includes('"error"'))).toHaveLength(1)
        await tickets.settled()
        expect(await counted('eldr_requests_total', { outcome: 'broken' })).toBe(1)
      }),
    )

    it.each<[Way, string, Fault, number, string | number]>([
      ['stream', 'is refused', { kind: 'status', status: 400 }, 400, 400],
      ['whole', 'is refused', { kind: 'status', status: 400 }, 400, 400],
      ['stream', 'resets its connection', { kind: 'reset', after: 'request' }, ...DECODE_FAILED],
      ['whole', 'resets its connection', { kind: 'reset', after: 'request' }, ...DECODE_FAILED],
      ['whole', 'is not JSON', { kind: 'answer', body: 'no' }, ...DECODE_FAILED],
      ['whole', 'is not JSON inside', { kind: 'answer', body: '{"choices":[nonsense]}' }, ...DECODE_FAILED],
    ])('(%s) %s before anything was sent gives an error status', (way, name, fault, status, code) =>
      withWorkers(1, async run => {
        const { tickets, ask } = run
        strike(run, fault, name === 'is not JSON inside' ? 'go on' : 'wait')
        const response = await ask(way, CHOICES)
        expect(response.status).toBe(status)
        expect(await response.json()).toMatchObject({ error: { code } })
        await tickets.settled()
      }),
    )

    it.each<Way>(['stream', 'whole'])('(%s) fails is retried if there is another worker', way =>
      withWorkers(2, async ({ tickets, counted, ask, strikeOnce }) => {
        strikeOnce('decode', { kind: 'reset', after: 'request' })
        const response = await ask(way, CHOICES)
        expect(response.status).toBe(200)
        const text = await response.text()
        for (const index of [0, 1, 2])
          expect(text.match(new RegExp(`"index":${index}`, 'g'))).toHaveLength(way === 'stream' ? 6 : 1)
        await tickets.settled()
        expect(await counted('eldr_retries_total', { leg: 'decode' })).toBe(1)
      }),
    )
  })
}

async function expectServed(response: Response, way: Way): Promise<void> {
  expect(response.status).toBe(200)
  const text = await response.text()
  expect(way === 'whole' ? text : text.match(/"text":"/g)).toHaveLength(
    way === 'whole' ? text.length : TOKENS.stream,
  )
  expect(text).toContain(way === 'whole' ? `"completion_tokens":${TOKENS.whole}` : 'data: [DONE]\n\n')
}

async function expectRefused(response: Response, [status, code]: readonly [number, string]): Promise<void> {
  expect([response.status, response.headers.get('x-eldr-error-code')]).toEqual([status, code])
  expect(response.headers.get('retry-after')).toBe('1')
  const text = await response.text()
  expect(JSON.parse(text)).toMatchObject({ error: { code, type: 'server_error', param: null } })
  expect(text).not.toContain('127.0.0.1')
}

/** A stream of these chunks, without its end. */
function streamBytes(...chunks: readonly string[]): string {
  const head = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n'
  return head + chunks.map(chunk => `${chunk.length.toString(16)}\r\n${chunk}\r\n`).join('')
}
