/**
 * Everything that looks at requests, in one list. A new listener is added here or passed to `startGateway`.
 */
import type { RestartWatch } from '../../cluster/restart-watch.ts'
import type { Settings } from '../config/settings.ts'
import { debugHeaders } from '../observe/debug-headers.ts'
import { endedStreams, type EndedStreams } from '../observe/ended-streams.ts'
import { type Insight, paceObserver } from '../observe/insight/insight.ts'
import type { Pace } from '../observe/insight/pace.ts'
import type { Log, RateLimitedLog } from '../observe/log/log.ts'
import { requestLog } from '../observe/log/request-log.ts'
import type { Metrics } from '../observe/metrics/metrics.ts'
import { requestMetrics } from '../observe/metrics/request-metrics.ts'
import type { RequestListener, RequestObserver } from '../observe/request-observer.ts'
import { requestSpans } from '../observe/tracing/request-spans.ts'
import type { Tracer } from '../observe/tracing/tracer.ts'

export interface ObserverParts {
  readonly settings: Settings
  readonly metrics: Metrics
  readonly log: Log
  readonly rateLimitedLog: RateLimitedLog
  readonly insight: Insight
  readonly pace: Pick<Pace, 'firstByte' | 'stream' | 'onWorker'>
  readonly ended: EndedStreams
  readonly restarts: Pick<RestartWatch, 'sawEngineId'>
  /** Undefined if tracing is off. */
  readonly tracer: Tracer | undefined
}

export function requestObservers(parts: ObserverParts): RequestObserver[] {
  const { settings, metrics, insight, pace, ended, tracer, restarts } = parts
  return [
    requestMetrics(metrics),
    // Before the log, which shows the trace id.
    ...(tracer === undefined ? [] : [requestSpans(tracer)]),
    insight,
    paceObserver(pace),
    endedStreams(ended),
    debugHeaders(settings),
    restartObserver(restarts),
    requestLog(parts),
  ]
}

/** An engine id that changes means that the worker has restarted. */
function restartObserver(restarts: Pick<RestartWatch, 'sawEngineId'>): RequestObserver {
  const listener: RequestListener = {
    attemptEnded({ worker }, end) {
      if (end.kind === 'handed_off' && end.engineId !== undefined)
        restarts.sawEngineId(worker.id, end.engineId)
    },
  }
  return { observe: ({ route }) => (route.kind === 'generate' ? listener : undefined) }
}
