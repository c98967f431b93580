/** Explains missed targets, one note per target. */
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
  readonly withPrefill: Judgement
  readonly alone: Judgement
  readonly onMeasured: Judgement
}

export function whyMissed(of: Judgements): string[] {
  return [farFromPrototype(of), lessGain(of), nearerTail(of), higherMedian(of)].filter(note => note !== '')
}

/** Differences in percentage points. */
const inPoints = (values: readonly number[]): string =>
  span(values.map(value => value / 100)).replace('%', 'points')

/** “task 10, lang 20 (with prefill)” for each setting with a miss. */
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

function farFromPrototype({ withPrefill, alone }: Judgements): string {
  const outside = [withPrefill, alone].flatMap(({ judged }) =>
    (['p50', 'p99'] as const).flatMap(metric =>
      judged.filter(of => isOutside(of, metric)).map(of => ({ of, metric })),
    ),
  )
  if (outside.length === 0) return ''
  const lower = outside.filter(({ of, metric }) => fromPrototype(of, metric) < 0)
  const byChance = outside.filter(({ of, metric }) => isWithinChance(of, metric))
  const tails = ({ judged }: Judgement) => span(judged.map(({ band }) => band.p99.mean / 100))
  const favour =
    lower.length > 0
      ? ` ${lower.length === outside.length ? 'All' : whole(lower.length)} of these ${whole(outside.length)} are lower than the prototype’s: better, but still outside the target.`
      : ''
  const higher =
    lower.length < outside.length
      ? ` ${whole(outside.length - lower.length)} ${outside.length - lower.length === 1 ? 'is' : 'are'} higher.`
      : ''
  return `band is more than 2 points from the prototype in ${whole(outside.length)} cases.${favour}${higher} Within the interval over seeds, the difference may be less than 2 points in ${outOf(byChance.length, outside.length)}. The settings differ in prefill and in how trace rows are drawn: band’s p99 is ${tails(withPrefill)} with prefill, where no row runs twice at once while another is free, and ${tails(alone)} with rows drawn with replacement, as in the prototype.${fewRows(outside[0]!.of)}${rowsTwice(outside.map(({ of }) => of))}`
}

function lessGain({ withPrefill, alone }: Judgements): string {
  const missed = (judged: readonly Judged[]) => missedIn(KEEPS_GAIN, judged)
  const all = [withPrefill, alone].flatMap(({ judged }) => missed(judged))
  if (all.length === 0) return ''
  const searched = withPrefill.judged.map(of => of.unionAll - of.union.p50.mean)
  return `union keeps less than 90 % of the gain with true patterns (${range(all.map(shareOf), 1)} %) at ${places([withPrefill, alone], missed)}. Prefill predicts decode only in part: on held-out calibration requests the best predictors tried (own shares, 16 neighbours, ridge, kernels, stacked) explain 0.78–0.79 (task) and 0.68–0.71 (lang) of the variance of the 8 leading components of the decode patterns, and the true values of those 8 components give the whole gain. A wider search does not help: searching all calibration requests (union@all) moves p50 by ${inPoints(searched)} with prefill, and ridge stacked with neighbours moved it by 0.1–0.3 points on held-out requests.`
}

function nearerTail({ withPrefill, alone, onMeasured }: Judgements): string {
  const all = [withPrefill, alone, onMeasured].flatMap(({ setting, judged }) =>
    missedIn(LOWERS_TAIL, judged).map(of => ({ of, setting })),
  )
  if (all.length === 0) return ''
  const isBoth = all.every(
    ({ of: { band, union, prototype } }) =>
      band.p99.mean < prototype.band.p99.ends[0] && union.p99.mean <= prototype.union.p99.ends[1],
  )
  const numbers = all.map(
    ({ of, setting }) =>
      `${named([of])} ${lowered(setting)}: band ${signedPercent(of.band.p99.mean / 100)} (prototype ${of.prototype.band.p99.text}), union ${signedPercent(of.union.p99.mean / 100)} (prototype ${of.prototype.union.p99.text})`,
  )
  return `union’s p99 is less than 5 points below band’s at ${numbers.join('; ')}.${isBoth ? ' The distance is small because band’s p99 is lower than in the prototype; union’s is at or below the prototype’s.' : ''}`
}

function higherMedian({ withPrefill, alone, onMeasured }: Judgements): string {
  const missed = (judged: readonly Judged[]) => missedIn(KEEPS_MEDIAN, judged)
  const settings = [withPrefill, alone, onMeasured]
  const all = settings.flatMap(({ judged }) => missed(judged))
  if (all.length === 0) return ''
  const shares = [withPrefill, alone].flatMap(({ judged }) => missed(judged)).map(shareOf)
  const kept =
    shares.length > 0 ? `; it keeps ${range(shares, 0)} % of the gain with true patterns there` : ''
  return `union’s median is above band’s at ${places(settings, missed)}. union predicts each request’s decode from ${range(
    all.map(of => of.calibration),
    0,
  )} calibration requests, and predicts worse with fewer${kept}.${rowsTwice(all)}`
}

/** Evaluation requests of the whole traces, for which the targets were set. */
const WHOLE_ROWS = 800

const fewRows = ({ rows }: Judged): string =>
  rows < WHOLE_ROWS
    ? ` The targets were set for traces of ${whole(WHOLE_ROWS)} evaluation requests, and these have ${whole(rows)}.`
    : ''

/** A warning if more requests are in flight than the trace has rows. */
function rowsTwice(loads: readonly Judged[]): string {
  const most = Math.max(...loads.map(({ inflight }) => inflight))
  const rows = Math.min(...loads.map(of => of.rows))
  if (most <= rows) return ''
  return ` Up to ${fixed(most, 0)} requests are in flight and the trace has ${whole(rows)} rows, so at the highest loads some rows run twice at once, which flatters band.`
}
