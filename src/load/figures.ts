/**
 * The results of a run. Times are in milliseconds; those of requests are exact, those between events are
 * within 0.1 %.
 */
import { quantileOf as at } from '../math/quantile.ts'
import { type Quantiles, quantilesOf } from '../sim/histogram.ts'
import type { Exchange } from './exchange.ts'
import type { LoadRun } from './run-load.ts'

export interface Slo {
  readonly ttftMs?: number
  readonly tpotMs?: number
}

export interface Figures {
  readonly requests: {
    /** All requests sent; those that count; of these, the successful and the failed ones. */
    readonly sent: number
    readonly counted: number
    readonly ok: number
    readonly failed: number
  }
  /** From the planned time (closed loop: from sending) to the first event with text. */
  readonly ttftMs: Quantiles
  /** (last − first) / (tokens − 1), for requests with two tokens or more. */
  readonly tpotMs: Quantiles
  /** Between consecutive events of a request. */
  readonly itlMs: Quantiles
  /** From the planned time to the last event with text. */
  readonly e2eMs: Quantiles
  /** From the planned time of the first counted request to the end of the last one. */
  readonly seconds: number
  readonly throughput: {
    readonly requestsPerSecond: number
    readonly outputTokensPerSecond: number
    /** Including prompts; null if the server does not count them. */
    readonly totalTokensPerSecond: number | null
  }
  readonly tokens: {
    /** Source of the counts: the server's usage, the client's count of events, or a mix over the requests. */
    readonly from: 'usage' | 'events' | 'both' | 'none'
    readonly promptMean: number | null
    readonly outputMean: number
  }
  readonly goodput: { readonly slo: Slo; readonly share: number; readonly requestsPerSecond: number } | null
  readonly errors: readonly { readonly kind: string; readonly count: number; readonly example: string }[]
  readonly client: {
    readonly isOpenLoop: boolean
    /** Delay between planned time and sending, over all requests. */
    readonly sendLagMs: { readonly p50: number; readonly p99: number; readonly max: number }
    readonly loopDelayMs: { readonly p99: number; readonly max: number }
    readonly cpuShare: number
    readonly keptUp: boolean
  }
}

/** Above these the client, not the server, shapes the measurement. */
const MAX_LAG_MS = 5
const MAX_LOOP_DELAY_MS = 20

export function figuresOf(run: LoadRun, slo: Slo = {}): Figures {
  const counted = run.exchanges.filter(one => one.counted)
  const ok = counted.filter(({ failure }) => failure === undefined)
  const fromMs = minOf(counted.map(({ plannedMs }) => plannedMs))
  const seconds = counted.length === 0 ? 0 : (maxOf(counted.map(({ endedMs }) => endedMs)) - fromMs) / 1000
  const output = ok.reduce((sum, one) => sum + tokensOf(one), 0)
  const prompts =
    ok.every(({ usage }) => usage !== undefined) && ok.length > 0
      ? ok.reduce((sum, { usage }) => sum + usage!.promptTokens, 0)
      : null
  const perSecond = (count: number) => (seconds > 0 ? count / seconds : NaN)
  return {
    requests: {
      sent: run.exchanges.length,
      counted: counted.length,
      ok: ok.length,
      failed: counted.length - ok.length,
    },
    ttftMs: quantiles(ok.map(ttftMs)),
    tpotMs: quantiles(ok.map(tpotMs).filter(value => !Number.isNaN(value))),
    itlMs: quantilesOf(run.gapsUs, 1e-3),
    e2eMs: quantiles(ok.map(({ lastMs, plannedMs }) => lastMs - plannedMs)),
    seconds,
    throughput: {
      requestsPerSecond: perSecond(ok.length),
      outputTokensPerSecond: perSecond(output),
      totalTokensPerSecond: prompts === null ? null : perSecond(prompts + output),
    },
    tokens: {
      from: sourceOf(ok),
      promptMean: prompts === null ? null : prompts / ok.length,
      outputMean: output / ok.length,
    },
    goodput: goodputOf(counted, slo, perSecond),
    errors: errorsOf(counted),
    client: clientOf(run),
  }
}

const tokensOf = ({ usage, events }: Exchange): number => usage?.completionTokens ?? events
const ttftMs = ({ firstMs, plannedMs }: Exchange): number => firstMs - plannedMs

/** NaN with fewer than two tokens. */
function tpotMs(one: Exchange): number {
  const tokens = tokensOf(one)
  return tokens > 1 ? (one.lastMs - one.firstMs) / (tokens - 1) : NaN
}

function sourceOf(ok: readonly Exchange[]): Figures['tokens']['from'] {
  const counted = ok.filter(({ usage }) => usage !== undefined).length
  if (ok.length === 0) return 'none'
  return counted === ok.length ? 'usage' : counted === 0 ? 'events' : 'both'
}

/** Failed requests are not good; a request with a single token has no TPOT to miss. */
function goodputOf(
  counted: readonly Exchange[],
  slo: Slo,
  perSecond: (count: number) => number,
): Figures['goodput'] {
  if (slo.ttftMs === undefined && slo.tpotMs === undefined) return null
  const isGood = (one: Exchange) =>
    one.failure === undefined &&
    ttftMs(one) <= (slo.ttftMs ?? Infinity) &&
    !(tpotMs(one) > (slo.tpotMs ?? Infinity))
  const good = counted.filter(isGood).length
  return { slo, share: good / counted.length, requestsPerSecond: perSecond(good) }
}

function errorsOf(counted: readonly Exchange[]): Figures['errors'] {
  const kinds = new Map<string, { count: number; example: string }>()
  for (const { failure } of counted) {
    if (failure === undefined) continue
    const kind = kinds.get(failure.kind) ?? { count: 0, example: failure.message }
    kind.count++
    kinds.set(failure.kind, kind)
  }
  return [...kinds].map(([kind, rest]) => ({ kind, ...rest })).sort((a, b) => b.count - a.count)
}

function clientOf({ exchanges, isOpen, loopDelayMs, cpuShare }: LoadRun): Figures['client'] {
  const lags = Float64Array.from(exchanges, ({ sentMs, plannedMs }) => Math.max(0, sentMs - plannedMs)).sort()
  const sendLagMs = { p50: at(lags, 0.5), p99: at(lags, 0.99), max: at(lags, 1) }
  const keptUp = !(sendLagMs.p99 > MAX_LAG_MS) && loopDelayMs.p99 <= MAX_LOOP_DELAY_MS
  return { isOpenLoop: isOpen, sendLagMs, loopDelayMs, cpuShare, keptUp }
}

export function quantiles(values: readonly number[]): Quantiles {
  const sorted = Float64Array.from(values).sort()
  const mean = values.length === 0 ? NaN : values.reduce((a, b) => a + b, 0) / values.length
  return { count: values.length, mean, p50: at(sorted, 0.5), p90: at(sorted, 0.9), p99: at(sorted, 0.99) }
}

// Spreading a long array into Math.max overflows the stack.
const maxOf = (values: readonly number[]) => values.reduce((a, b) => Math.max(a, b), -Infinity)
const minOf = (values: readonly number[]) => values.reduce((a, b) => Math.min(a, b), Infinity)
