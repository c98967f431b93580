/** The checker is tested with planted bugs: records of a run without faults, each changed by one bug. */
import { describe, expect, it } from 'vitest'
import type { Fault, KnownAnswer, Observation } from '../observation.ts'
import { AdminLedger } from './admin-ledger.ts'
import { Checker } from './checker.ts'
import type { Snapshot } from './check-quiet.ts'

const IDS = Array.from({ length: 24 }, (_, index) => 100 + ((index * 37) % 91))
const KNOWN: KnownAnswer = {
  name: 'greedy 1',
  path: '/v1/completions',
  body: {},
  ids: IDS,
  text: IDS.map(id => `${id} `).join(''),
  finish: 'length',
  promptTokens: 7,
}
const WHOLE: Observation = {
  id: 1,
  ask: 0,
  gateway: 'gw1',
  stream: true,
  startMs: 1_000,
  firstMs: 1_500,
  endMs: 4_000,
  end: 'ended',
  pauseMs: 100,
  status: 200,
  worker: 'd1',
  text: KNOWN.text,
  ids: IDS,
  finishes: ['length'],
  dones: 1,
  codes: [],
  late: 0,
  usage: { prompt: 7, completion: IDS.length },
  names: 1,
  malformed: [],
  resumed: 0,
}
/** A stream that its decoder's death ended. */
const BROKEN: Observation = {
  ...WHOLE,
  id: 2,
  ids: IDS.slice(0, 9),
  text: IDS.slice(0, 9)
    .map(id => `${id} `)
    .join(''),
  finishes: [],
  dones: 0,
  codes: ['ELDR_STREAM_BROKEN'],
  usage: undefined,
}
const QUIET: Snapshot = {
  atMs: 9_000,
  counts: {
    gw1: { tickets: 0, running: 0, inflight: 0, inflightElsewhere: 0, ticketLeaks: 0 },
    d1: { requests: 0, leases: 0, leasedBlocks: 0, blocksUsed: 0 },
  },
  memory: [],
  bugs: [],
}
const VIEW = { gw1: { policy: 'jsq' }, gw2: { policy: 'jsq' } }
const fault = (kind: string, ...targets: string[]): Fault => ({
  id: '0:0',
  kind,
  targets,
  startMs: 2_000,
  endMs: 2_500,
})

function checker(faults: readonly Fault[] = [], complete = false) {
  const ledger = new AdminLedger(VIEW, { policy: 'jsq' })
  const topology = { prefills: ['p1'], decodes: ['d1', 'd2'] }
  const one = new Checker({ known: [KNOWN], limitMs: 20_000, topology, ledger, complete })
  one.faults.push(...faults)
  const quiet = (snapshot: Snapshot, view = VIEW) => one.quiet(snapshot, one.quietProblems(snapshot, view))
  const kinds = () => one.violations.map(({ what }) => what)
  const judged = (...seen: Observation[]) => (one.ended(seen), kinds())
  return { one, ledger, quiet, kinds, judged }
}

const without = (at: number) => IDS.filter((_, index) => index !== at)
const repeated = IDS.flatMap((id, index) => (index === 10 ? [id, id] : [id]))

describe('a run without bugs', () => {
  it('passes, with complete answers and with one that a coded error ended', () => {
    const { one, quiet, kinds } = checker([fault('kill-worker', 'd1')])
    one.ended([WHOLE, BROKEN])
    quiet(QUIET)
    expect(kinds()).toEqual([])
    expect(one.tally).toMatchObject({ requests: 2, streams: 2, hit: 2, whole: 1 })
    expect([...one.failures]).toEqual([['ELDR_STREAM_BROKEN', 1]])
  })

  it('may break connections of a relay that was killed, and only those', () => {
    const cut: Observation = { ...BROKEN, codes: [], end: 'cut', reason: 'ECONNRESET' }
    expect(checker([fault('kill-relay', 'gw1/relay-2')]).judged(cut)).toEqual([])
    expect(checker([fault('cut', 'client', 'gw1')]).judged(cut)).toEqual([])
    expect(checker([fault('kill-relay', 'gw2/relay-2')]).judged(cut)).toEqual(['connection broke'])
    expect(checker([fault('kill-owner', 'gw1/owner')]).judged(cut)).toEqual(['connection broke'])
    expect(checker([fault('kill-worker', 'd1')]).judged(cut)).toEqual(['connection broke'])
  })
})

describe('a planted bug is found', () => {
  it.each<[bug: string, seen: Partial<Observation>, found: string]>([
    ['a token is repeated', { ids: repeated }, 'repeated token'],
    ['the last token is repeated', { ids: [...IDS, IDS.at(-1)!] }, 'repeated token'],
    ['a token is lost', { ids: without(5) }, 'lost token'],
    ['the answer ends early and looks complete', { ids: IDS.slice(0, 20) }, 'lost token'],
    ['a token is changed', { ids: IDS.with(12, 7) }, 'changed token'],
    ['only the text is changed', { text: KNOWN.text.replace('137 ', '138 ') }, 'changed text'],
    [
      'the text of a request without ids is repeated',
      { ids: undefined, text: `${KNOWN.text}x` },
      'changed text',
    ],
    ['the end is swallowed', { dones: 0 }, 'swallowed end'],
    ['the finish reason is swallowed', { finishes: [] }, 'swallowed end'],
    ['the finish reason is changed', { finishes: ['stop'] }, 'changed finish reason'],
    ['it ends twice', { dones: 2 }, 'ended twice'],
    ['tokens follow the end', { late: 1 }, 'ended twice'],
    ['an error follows the end', { codes: ['ELDR_STREAM_BROKEN'] }, 'ended twice'],
    ['an error has no code', { codes: ['502'], dones: 0, finishes: [] }, 'error without a code'],
    [
      'an error response has no body',
      { status: 502, dones: 0, finishes: [], ids: [], text: '' },
      'error without a code',
    ],
    ['usage counts a seam twice', { usage: { prompt: 7, completion: 25 } }, 'changed usage'],
    ['the id changes at a seam', { names: 2 }, 'changed id'],
    ['an event is cut in two', { malformed: ['data: {"id'] }, 'malformed response'],
    ['the request hangs', { end: 'hung', endMs: 30_000, dones: 0, finishes: [] }, 'hang'],
    ['the request ends after its limit', { endMs: 24_000 }, 'late end'],
    ['the connection breaks', { end: 'cut', dones: 0, finishes: [] }, 'connection broke'],
  ])('%s', (_, changed, found) => {
    expect(checker().judged({ ...WHOLE, ...changed })).toContain(found)
  })

  it('one request is reported twice', () => {
    expect(checker().judged(WHOLE, WHOLE)).toEqual(['ended twice'])
  })

  it('a client never notices that its request hangs', () => {
    const { one, kinds } = checker()
    one.running([{ id: 5, gateway: 'gw1', startMs: 0 }])
    expect(kinds()).toEqual(['hang'])
  })

  it.each([
    ['gw1', 'tickets', 'lost release'],
    ['gw1', 'inflightElsewhere', 'lost release'],
    ['gw1', 'running', 'request left over'],
    ['gw1', 'ticketLeaks', 'ticket counted wrongly'],
    ['d1', 'leases', 'leaked lease'],
    ['d1', 'leasedBlocks', 'leaked KV block'],
    ['d1', 'blocksUsed', 'leaked KV block'],
  ])('%s has %s when quiet', (name, count, found) => {
    const { quiet, kinds } = checker()
    quiet({ ...QUIET, counts: { ...QUIET.counts, [name]: { ...QUIET.counts[name], [count]: 1 } } })
    expect(kinds()).toEqual([found])
  })

  it('the gateway logs a bug', () => {
    const { quiet, kinds } = checker()
    quiet({ ...QUIET, bugs: ['ticket leak (bug): tickets not released'] })
    expect(kinds()).toEqual(['bug in the log'])
  })

  it('memory grows, in lives that are each short', () => {
    const { one, quiet, kinds } = checker()
    for (let minute = 0; minute < 40; minute++) {
      const memory = [
        { name: 'gw1/relay-1', pid: Math.floor(minute / 8), bytes: 8e7 + (minute % 8) * 3e6 },
        { name: 'gw1/owner', pid: 3, bytes: 8e7 + (minute % 3) * 5e6 },
      ]
      quiet({ ...QUIET, atMs: minute * 60_000, memory })
    }
    one.finish(0)
    expect(kinds()).toEqual(['memory growth'])
    expect(one.violations[0]!.detail).toContain('gw1/relay-1: 3.00 MB per minute')
  })

  it('a healed cluster refuses requests', () => {
    const { one, kinds } = checker()
    one.probes([
      { ...WHOLE, status: 503, codes: ['ELDR_NO_DECODE_WORKER'], dones: 0, finishes: [], ids: [], text: '' },
    ])
    expect(kinds()).toEqual(['not served after recovery'])
  })

  it('the adversary hits too few streams', () => {
    const { one, kinds } = checker()
    one.ended([WHOLE])
    one.finish(0.2)
    expect(kinds()).toEqual(['too few streams hit'])
  })

  it('a stream is not resumed, once that is demanded', () => {
    const dies = fault('kill-worker', 'd1')
    expect(checker([dies]).judged(BROKEN)).toEqual([])
    expect(checker([dies], true).judged(BROKEN)).toEqual(['not resumed'])
    expect(checker([dies, fault('stop-worker', 'd2')], true).judged(BROKEN)).toEqual([])
    expect(checker([dies, fault('kill-worker', 'p1')], true).judged(BROKEN)).toEqual([])
  })
})
