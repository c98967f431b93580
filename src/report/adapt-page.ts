/**
 * docs/evidence/adapt.md, from docs/evidence/results/adapt.json, which `bench/adapt.mjs` writes, and
 * adapt-live.json, which `test/soak/adapt.mjs` prints.
 */
import type { Interval } from '../sim/confidence.ts'
import { meanInterval } from '../sim/confidence.ts'
import { markdownTable } from './markdown-table.ts'
import { fixed, many, whole } from './numbers.ts'

export interface AdaptFigures {
  readonly workers: number
  readonly rate: number
  readonly requests: number
  readonly profile: string
  readonly runSeeds: number
  readonly minGain: number
  readonly matchedSample: number
  readonly swaps: readonly AdaptSwapRow[]
  readonly matched: readonly AdaptMatchedRow[]
  readonly drift: readonly AdaptDriftRow[]
}

/** A refit for traffic of another kind. Gains are shares of TPOT. */
export interface AdaptSwapRow {
  readonly from: string
  readonly to: string
  readonly policy: string
  readonly seed: number
  readonly judgedBy: string
  readonly gain: number
  readonly gainHalf: number
  readonly accepted: boolean
  readonly realised: Interval
  readonly realisedP99: Interval
  /** Of an artifact that was fitted on a trace of the new traffic. */
  readonly own: Interval
}

/** A refit that was not needed. `change`: of TPOT on other requests of the mix; 0 if it was not accepted. */
export interface AdaptMatchedRow {
  readonly mix: string
  readonly policy: string
  readonly seed: number
  readonly judgedBy: string
  readonly gain: number
  readonly gainHalf: number
  readonly accepted: boolean
  readonly change: number
}

export interface AdaptDriftRow {
  readonly mix: string
  readonly perSecond: number
  readonly weekAlarms: number
  readonly dayAlarms: number
  readonly meanRank: number
  readonly foreignRank: number
  readonly delayP50: number
  readonly delayMax: number
  readonly lowestDomain: { readonly name: string; readonly rank: number }
}

/** A long run on the embedded cluster. Shares of TPOT. */
export interface AdaptLive {
  readonly date: string
  readonly minutes: number
  readonly perSecond: number
  readonly speed: number
  readonly ends: { readonly ok: number; readonly broken: number; readonly lost: number }
  readonly phases: readonly {
    readonly traffic: string
    readonly swapSeconds: number
    readonly gain: number
    readonly gainHalf: number
    readonly judgedBy: string
    readonly worse: number
    readonly worseHalf: number
  }[]
}

export function adaptPage(figures: AdaptFigures, live: AdaptLive): string {
  const { swaps, matched, drift, workers, rate, requests, profile, runSeeds, minGain } = figures
  return `${[
    '# Live recalibration: what it predicts and what it gives',
    `Simulated. With \`adapt.mode: on\` a gateway samples live requests, notices when they drift away from the artifact, refits it and swaps if that pays ([settings](../reference/config.md)). This page holds its predictions against what the simulator then measures. \`npm run build && node bench/adapt.mjs --out docs/evidence/results/adapt.json && npm run docs\` makes it again from the shipped lab16 traces.`,
    findings(figures),
    '## Predicted beside realised',
    `${many(swaps.length, 'refit')}: the artifact was fitted on one mix, and requests of the other arrive. Half of a sample of 500 is fitted, the other half judges. *Predicted*: the share of TPOT that the judgement promises ± its 95 % interval. *Realised*: the change of mean TPOT in the simulator, old artifact against new, on requests that neither has seen (${many(workers, 'decode worker')}, profile \`${profile}\`, ${rate} requests per second, ${whole(requests)} requests, mean of ${runSeeds} seeds ± 95 %). *Fit*: what \`eldr fit\` on 500 requests of the new mix, with their decode patterns, gives. All in %.`,
    swapTable(swaps),
    '## Matched traffic',
    `${many(matched.length, 'refit')} that nothing called for: on ${figures.matchedSample} requests of the mix that the artifact was fitted on, without waiting for the drift detector, which raises no alarm there. A refit is accepted if its gain exceeds its interval and ${fixed(100 * minGain, 0)} %. Where none is accepted, \`adapt: on\` changes nothing.`,
    matchedTable(matched),
    '## The drift detector',
    `The rank of a request is the share of calibration requests with a lower cosine to their nearest centroid. A week of requests of the same mix (${drift[0]!.perSecond} per second, ${whole(7 * 86_400 * drift[0]!.perSecond)} in all), in constant shares and with shares that rotate each day; then 200 switches to the other mix.`,
    driftTable(drift),
    'A domain that is alone has another mean rank than the mix; one with fewer than 5 % of the requests, which the fit hardly saw, may raise an alarm when it is alone. A change of shares between known domains raises none, although a refit might pay.',
    ...liveSection(live),
  ].join('\n\n')}\n`
}

function liveSection({ date, minutes, perSecond, speed, ends, phases }: AdaptLive): string[] {
  const { ok, broken, lost } = ends
  return [
    '## On the embedded cluster',
    `Replayed: real gateway and workers, step times from a profile. ${minutes} minutes with \`adapt.mode: on\`, 2P4D, profile \`h200-first\` at speed ${speed}, ${perSecond} requests per second, on two cores shared with other work, ${date}. Traffic switches twice, and a decode worker dies shortly after each switch. Of ${whole(ok + broken + lost)} requests ${lost} were lost; ${broken} streams on the workers that died ended with an error event. *Against a fit*: change of mean TPOT against an artifact that \`eldr fit\` made for that traffic, in six alternating pairs of slots that begin 90 seconds after the switch, or with a later swap; target: at most 2 %.`,
    markdownTable(
      ['traffic', 'swapped after', 'predicted gain', 'judged by', 'against a fit'],
      1,
      phases.map(({ traffic, swapSeconds, gain, gainHalf, judgedBy, worse, worseHalf }) => [
        traffic,
        `${fixed(swapSeconds, 0)} s`,
        `${percent(gain)} ± ${percent(gainHalf)} %`,
        judgedBy,
        `${worse > 0 ? '+' : ''}${percent(worse)} ± ${percent(worseHalf)} %`,
      ]),
    ),
    '<!-- not run: it takes 20 minutes and a quiet machine; CI runs one minute of it -->\n```sh\nnpm run build && npm run test:soak-adapt -- --minutes 20\n```',
  ]
}

const percent = (share: number) => fixed(100 * share, 1)
const signed = (share: number) => `${share > 0 ? '+' : ''}${fixed(100 * share, 2)} %`

function findings({ swaps, matched, drift }: AdaptFigures): string {
  const accepted = swaps.filter(swap => swap.accepted)
  const error = meanInterval(accepted.map(({ gain, realised }) => realised.mean - gain))
  const within = accepted.filter(
    ({ gain, gainHalf, realised }) => Math.abs(realised.mean - gain) <= gainHalf,
  ).length
  const missing = meanInterval(swaps.map(({ own, realised }) => own.mean - realised.mean))
  const wrong = matched.filter(one => one.accepted)
  const worst = Math.max(0, ...matched.map(({ change }) => change))
  const alarms = drift.reduce((sum, { weekAlarms, dayAlarms }) => sum + weekAlarms + dayAlarms, 0)
  return [
    `- ${accepted.length} of ${swaps.length} refits for other traffic are accepted. They give ${fixed(100 * error.mean, 2)} ± ${fixed(100 * error.half, 2)} points more than predicted, on average; ${within} lie within the predicted interval.`,
    `- A refit on the sample reaches what a fit made for the traffic gives, less ${fixed(100 * missing.mean, 2)} ± ${fixed(100 * missing.half, 2)} points.`,
    `- On matched traffic ${wrong.length} of ${matched.length} forced refits are accepted; the worst change of TPOT is ${signed(worst)}.`,
    `- ${many(alarms, 'false alarm')} in ${2 * drift.length} simulated weeks; other traffic is noticed after ${drift.map(({ delayP50 }) => delayP50).join(' or ')} requests (median).`,
  ].join('\n')
}

function swapTable(swaps: readonly AdaptSwapRow[]): string {
  return markdownTable(
    ['artifact → traffic', 'policy', 'judged by', 'predicted', 'realised', 'realised p99', 'fit'],
    3,
    swaps.map(({ from, to, policy, judgedBy, gain, gainHalf, accepted, realised, realisedP99, own }) => [
      `${from} → ${to}`,
      policy,
      judgedBy,
      `${percent(gain)} ± ${percent(gainHalf)}${accepted ? '' : ' (not accepted)'}`,
      `${percent(realised.mean)} ± ${percent(realised.half)}`,
      percent(realisedP99.mean),
      percent(own.mean),
    ]),
  )
}

function matchedTable(matched: readonly AdaptMatchedRow[]): string {
  const cells = [...new Set(matched.map(({ mix, policy }) => `${mix} ${policy}`))]
  return markdownTable(
    ['mix', 'policy', 'refits', 'accepted', 'mean predicted gain', 'change of TPOT, mean ± 95 %', 'worst'],
    2,
    cells.map(cell => {
      const own = matched.filter(({ mix, policy }) => `${mix} ${policy}` === cell)
      const change = meanInterval(own.map(one => one.change))
      return [
        ...cell.split(' '),
        whole(own.length),
        whole(own.filter(({ accepted }) => accepted).length),
        `${percent(meanInterval(own.map(({ gain }) => gain)).mean)} %`,
        `${signed(change.mean)} ± ${fixed(100 * change.half, 2)}`,
        signed(Math.max(...own.map(one => one.change))),
      ]
    }),
  )
}

function driftTable(drift: readonly AdaptDriftRow[]): string {
  return markdownTable(
    [
      'mix',
      'alarms in a week',
      'with rotating shares',
      'mean rank',
      'lowest domain',
      'rank of the other mix',
      'requests until an alarm, median (max)',
    ],
    1,
    drift.map(row => [
      row.mix,
      whole(row.weekAlarms),
      whole(row.dayAlarms),
      fixed(row.meanRank, 2),
      `${row.lowestDomain.name} ${fixed(row.lowestDomain.rank, 2)}`,
      fixed(row.foreignRank, 2),
      `${whole(row.delayP50)} (${whole(row.delayMax)})`,
    ]),
  )
}
