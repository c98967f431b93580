import { describe, expect, it } from 'vitest'
import type { Exchange } from '../load/exchange.ts'
import { terminalOn } from '../report/terminal.ts'
import { type DemoAbout, demoReport, demoTables } from './demo-report.ts'
import { checkSame, differing, type DemoRun, outputsOf } from './demo.ts'

const hash = (letter: string) => letter.repeat(64)
const answered = (index: number, textHash: string, completionTokens = 5): Exchange => ({
  index,
  counted: true,
  plannedMs: 0,
  sentMs: 0,
  firstMs: 0,
  lastMs: 0,
  endedMs: 0,
  events: 5,
  gapsMs: [],
  textHash,
  usage: { promptTokens: 1, completionTokens },
})
const failed = (index: number): Exchange => ({
  ...answered(index, hash('a')),
  failure: { kind: 'reset', message: 'gone' },
})
const base = outputsOf([answered(0, hash('a')), answered(1, hash('b')), answered(2, hash('c'))])

describe('outputs', () => {
  it('are the same in any order of responses', () => {
    expect(
      differing(base, outputsOf([answered(2, hash('c')), answered(0, hash('a')), answered(1, hash('b'))])),
    ).toEqual([])
  })

  it.each([
    [
      'another text',
      outputsOf([answered(0, hash('a')), answered(1, hash('d')), answered(2, hash('c'))]),
      [1],
    ],
    [
      'a shorter one',
      outputsOf([answered(0, hash('a'), 4), answered(1, hash('b')), answered(2, hash('c'))]),
      [0],
    ],
    ['one that is missing', outputsOf([answered(0, hash('a')), answered(1, hash('b'))]), [2]],
    [
      'one too many',
      outputsOf([
        answered(0, hash('a')),
        answered(1, hash('b')),
        answered(2, hash('c')),
        answered(3, hash('e')),
      ]),
      [3],
    ],
    ['a failure', outputsOf([failed(0), answered(1, hash('b')), answered(2, hash('c'))]), [0]],
  ])('differ by %s', (_, other, expected) => {
    expect(differing(base, other)).toEqual(expected)
  })

  it('of failed requests are never equal, not even to each other', () => {
    expect(differing(outputsOf([failed(0)]), outputsOf([failed(0)]))).toEqual([0])
  })

  it('of failed requests are an error of the cluster, not of routing', () => {
    const runs = [
      { policy: 'round_robin' as const, outputs: outputsOf([answered(0, hash('a')), failed(1)]) },
      { policy: 'eldr' as const, outputs: outputsOf([answered(0, hash('a')), answered(1, hash('b'))]) },
    ]
    expect(() => checkSame(runs)).toThrow(expect.objectContaining({ code: 'ELDR_CLUSTER_FAILED' }) as Error)
  })

  it('that differ are an error with the policy and a request', () => {
    const other = outputsOf([answered(0, hash('a')), answered(1, hash('d')), answered(2, hash('c'))])
    expect(() =>
      checkSame([
        { policy: 'round_robin', outputs: base },
        { policy: 'eldr', outputs: base },
      ]),
    ).not.toThrow()
    expect(() =>
      checkSame([
        { policy: 'round_robin', outputs: base },
        { policy: 'eldr', outputs: other },
      ]),
    ).toThrow(/1 of 3 requests under eldr \(first: request 1\).*ELDR_OUTPUTS_DIFFER/)
  })
})

describe('report', () => {
  const run = (policy: string, late: number) =>
    ({
      policy,
      late,
      tpotMs: { p50: 9, p99: 10 },
      activeExperts: 40,
      batch: 10,
      outputs: base,
      figures: { client: { keptUp: true } },
      simulated: { tpotMs: { p50: 9, p99: 10 }, activeExperts: 40 },
    }) as unknown as DemoRun
  const about: DemoAbout = {
    topology: '2P4D',
    model: 'tiny6',
    computed: true,
    trace: 't',
    profile: 'p',
    profileSource: 's',
    machine: { cpu: 'c', cores: 2, node: 'v20' },
    rate: 36,
    speed: 1,
    requests: 3,
    seed: 0,
    version: '0',
  }
  const notesOf = (...runs: DemoRun[]) => demoReport(runs, about).sections[0]!.exhibits[0]!.notes!.join(' ')

  it('says under which policies steps were late and by how much, and nothing if they were on time', () => {
    expect(notesOf(run('round_robin', 0.01), run('eldr', 0.02))).toBe('')
    expect(notesOf(run('round_robin', 0.01), run('eldr', 0.47))).toMatch(
      /not a valid measurement.*took longer than in the profile \(eldr 47\s%\)/,
    )
  })

  it('marks only changes with late steps, in the table, the bars and the page', () => {
    const plain = { ...terminalOn({ isTTY: false, columns: 200, write: () => true } as never) }
    const changesOf = (...runs: DemoRun[]) => {
      const cells = demoReport(runs, about).sections[0]!.exhibits[0]!.tables[0]!.rows.map(row => [
        row[2],
        row[5],
      ])
      return { cells: JSON.stringify(cells), text: demoTables(runs, about, plain) }
    }
    const [base, slowBase] = [run('round_robin', 0.01), run('round_robin', 0.1)]
    const [quick, slow] = [run('eldr', 0.02), { ...run('union', 0.3), tpotMs: { p50: 10.17, p99: 11.3 } }]
    const one = changesOf(base, quick, slow)
    expect(one.text.match(/\+13[.,]0 % \?/g)).toHaveLength(3)
    expect(one.text).not.toMatch(/0[.,]0 % \?[^]*eldr/)
    expect(one.cells).toContain('+13.0 % ?')
    expect(one.text).toContain('1 of them not valid')
    expect(changesOf(base, quick).text).not.toContain('?')
    // A late baseline makes all changes doubtful.
    expect(changesOf(slowBase, quick).text).toMatch(/0[.,]0 % \?/)
  })
})
