/** Why targets are missed, a note for each target that is. */
import {
  fromPrototype,
  isOutside,
  isWithinChance,
  type Judged,
  type Judgement,
  KEEPS_GAIN,
  KEEPS_MEDIAN,
  LOWERS_TAIL,
  missedIn,
  named,
  namedOf,
  shareOf,
} from './targets.ts'
import { fixed } from './rounded.ts'
import { listed, outOf, range, signedPercent, span } from './words.ts'
import { whole } from '../report/numbers.ts'

interface Judgements {
  readonly asServed: Judgement
  readonly alone: Judgement
  readonly onMeasured: Judgement
}

export function whyMissed(of: Judgements): string[] {
  return [farFromPrototype(of), lessGain(of), nearerTail(of), higherMedian(of)].filter(note => note !== '')
}

/** Of differences in points. */
const inPoints = (values: readonly number[]): string =>
  span(values.map(value => value / 100)).replace('%', 'points')

/** “task 10, lang 20 (as served)” of every setting in which something was missed. */
const places = (
  judgements: readonly Judgement[],
  of: (judged: readonly Judged[]) => readonly Judged[],
): string =>
  listed(
    judgements.flatMap(({ setting, judged }) =>
      of(judged).length > 0 ? [`${namedOf(of(judged), judged)} (${lowered(setting)})`] : [],
    ),
  )

const lowered = (setting: string): string =>
  `${setting[0]!.toLowerCase()}${setting.slice(1)}`.replace(/ \(.*/, '')

function farFromPrototype({ asServed, alone }: Judgements): string {
  const outside = [asServed, alone].flatMap(({ judged }) =>
    (['p50', 'p99'] as const).flatMap(metric =>
      judged.filter(of => isOutside(of, metric)).map(of => ({ of, metric })),
    ),
  )
  if (outside.length === 0) return ''
  const lower = outside.filter(({ of, metric }) => fromPrototype(of, metric) < 0)
  const byChance = outside.filter(({ of, metric }) => isWithinChance(of, metric))
  const tails = ({ judged }: Judgement) => span(judged.map(({ eldr }) => eldr.p99.mean / 100))
  const favour =
    lower.length > 0
      ? ` ${lower.length === outside.length ? 'All' : whole(lower.length)} of these ${whole(outside.length)} are lower than the prototype’s: a difference in our favour, still shown as outside.`
      : ''
  const higher = lower.length < outside.length ? ` ${whole(outside.length - lower.length)} are higher.` : ''
  return `eldr more than 2 points from the prototype.${favour}${higher} The interval over seeds reaches to within 2 points in ${outOf(byChance.length, outside.length)}. The settings differ in prefill and in how rows are drawn: eldr’s p99 is ${tails(asServed)} as served, where no row comes twice while another is free, and ${tails(alone)} with rows drawn with replacement, as the prototype drew them.${fewRows(outside[0]!.of)}${rowsTwice(outside.map(({ of }) => of))}`
}

function lessGain({ asServed, alone }: Judgements): string {
  const missed = (judged: readonly Judged[]) => missedIn(KEEPS_GAIN, judged)
  const all = [asServed, alone].flatMap(({ judged }) => missed(judged))
  if (all.length === 0) return ''
  const searched = asServed.judged.map(of => of.unionAll - of.union.p50.mean)
  return `Less than 90 % of the true patterns’ gain at ${places([asServed, alone], missed)}: union keeps ${range(all.map(shareOf), 1)} % there. What prefill shows foretells a request’s decode only in part: on held-out calibration requests the best predictors tried (own shares, 16 neighbours, ridge, kernels, stacked) explain 0.78–0.79 (task) and 0.68–0.71 (lang) of the variance of the 8 leading components of the decode patterns, and knowing just those 8 components of the truth gives the whole gain. Searching all calibration requests (union@all) moves p50 by ${inPoints(searched)} as served, and ridge stacked with neighbours moved it by 0.1–0.3 points on held-out requests: it is the information that lacks, not the shortcut that costs.`
}

function nearerTail({ asServed, alone, onMeasured }: Judgements): string {
  const all = [asServed, alone, onMeasured].flatMap(({ setting, judged }) =>
    missedIn(LOWERS_TAIL, judged).map(of => ({ of, setting })),
  )
  if (all.length === 0) return ''
  const isBoth = all.every(
    ({ of: { eldr, union, prototype } }) =>
      eldr.p99.mean < prototype.eldr.p99.ends[0] && union.p99.mean <= prototype.union.p99.ends[1],
  )
  const numbers = all.map(
    ({ of, setting }) =>
      `${named([of])} ${lowered(setting)}: eldr ${signedPercent(of.eldr.p99.mean / 100)} (prototype ${of.prototype.eldr.p99.text}), union ${signedPercent(of.union.p99.mean / 100)} (prototype ${of.prototype.union.p99.text})`,
  )
  return `Less than 5 points between the p99 of union and eldr. ${numbers.join('; ')}.${isBoth ? ' eldr’s p99 is lower than the prototype’s, so the distance is smaller, though union’s own is at or below the prototype’s.' : ''}`
}

function higherMedian({ asServed, alone, onMeasured }: Judgements): string {
  const missed = (judged: readonly Judged[]) => missedIn(KEEPS_MEDIAN, judged)
  const settings = [asServed, alone, onMeasured]
  const all = settings.flatMap(({ judged }) => missed(judged))
  if (all.length === 0) return ''
  const shares = [asServed, alone].flatMap(({ judged }) => missed(judged)).map(shareOf)
  const kept = shares.length > 0 ? `; it keeps ${range(shares, 0)} % of the true patterns’ gain there` : ''
  return `union’s median above eldr’s at ${places(settings, missed)}. union predicts each request’s decode from ${range(
    all.map(of => of.calibration),
    0,
  )} calibration requests, and the fewer they are the worse it does${kept}.${rowsTwice(all)}`
}

/** The targets were set for the whole traces, which have so many evaluation requests. */
const WHOLE_ROWS = 800

const fewRows = ({ rows }: Judged): string =>
  rows < WHOLE_ROWS
    ? ` The targets were set for traces of ${whole(WHOLE_ROWS)} evaluation requests, and these have ${whole(rows)}.`
    : ''

/** More in flight than there are different ones. */
function rowsTwice(loads: readonly Judged[]): string {
  const most = Math.max(...loads.map(({ inflight }) => inflight))
  const rows = Math.min(...loads.map(of => of.rows))
  if (most <= rows) return ''
  return ` Up to ${fixed(most, 0)} requests are in flight and the trace has ${whole(rows)} rows, so at the highest loads some are there twice, which flatters eldr.`
}
