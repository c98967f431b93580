/** Live decisions: the worker, the reason and the other candidates. */
import { useSignal } from '@preact/signals'
import { useRef } from 'preact/hooks'
import type { LiveCandidate, LiveDecision } from '../src/gateway/observe/insight/wire.ts'
import { workerGroup } from './colours.ts'
import { Empty, Section, WorkerName } from './parts.tsx'
import { decisions, heldBack, paused, pulse, rates } from './state.ts'
import { clock, cosine, number, percent, reason } from './words.ts'

const SHOWN = 24

export function Decisions() {
  const only = useSignal('')
  // The list must not move while the pointer or the keyboard focus is on it.
  const held = useSignal(false)
  const last = useRef(decisions.value)
  if (!held.value || last.current.length === 0) last.current = decisions.value
  const shown = last.current
    .filter(decision => only.value === '' || decision.reason === only.value)
    .slice(0, SHOWN)
  const reasons = Object.keys(pulse.value?.health.reasons ?? {}).sort()
  return (
    <>
      <Reasons />
      <Section
        title="Decisions"
        aside={
          <div class="tools">
            <label>
              reason{' '}
              <select value={only.value} onChange={event => (only.value = event.currentTarget.value)}>
                <option value="">all</option>
                {reasons.map(name => (
                  <option key={name} value={name}>
                    {reason(name).short}
                  </option>
                ))}
              </select>
            </label>
            <button type="button" aria-pressed={paused.value} onClick={togglePause}>
              {paused.value ? `Resume (${number(heldBack.value)} missed)` : 'Pause'}
            </button>
          </div>
        }
      >
        <Sampling />
        {shown.length === 0 ? (
          <Empty>
            {only.value === ''
              ? 'No decisions yet: they appear with the first requests to /v1.'
              : 'No shown decision has this reason.'}
          </Empty>
        ) : (
          <ol
            class="decisions"
            aria-label="Decisions, the newest first"
            onPointerEnter={() => (held.value = true)}
            onPointerLeave={() => (held.value = false)}
            onFocusCapture={() => (held.value = true)}
            onBlurCapture={() => (held.value = false)}
          >
            {shown.map((decision, at) => (
              // Keyed by position: texts change in place and no element moves.
              <Line key={at} decision={decision} />
            ))}
          </ol>
        )}
      </Section>
    </>
  )
}

function togglePause(): void {
  paused.value = !paused.value
  heldBack.value = 0
}

function Sampling() {
  const { made, shown } = rates.value
  const all = made === 0 || shown >= made * 0.999
  return (
    <p class="quiet" data-fact="sampling">
      {all
        ? `All decisions are shown: ${number(made)} per second.`
        : `A random sample: ${number(shown)} of ${number(made)} decisions per second (${percent(shown / made)}).`}{' '}
      Select one for details.
    </p>
  )
}

function Reasons() {
  const health = pulse.value?.health
  const all = health?.decisions ?? 0
  if (health === undefined || all === 0) return null
  const sorted = Object.entries(health.reasons).sort(([, a], [, b]) => b - a)
  return (
    <Section
      title="Reasons"
      aside={
        <p class="quiet">
          last {Math.round(health.seconds / 60) || 1} min, {number(all)} decisions
        </p>
      }
    >
      <ul class="reasons">
        {sorted.map(([name, count]) => (
          <li key={name} title={reason(name).long} data-reason={name}>
            <span>{reason(name).short}</span>
            <span class="bar" aria-hidden="true">
              <i style={{ width: `${(100 * count) / all}%` }} />
            </span>
            <b>{percent(count / all, 1)}</b>
          </li>
        ))}
      </ul>
    </Section>
  )
}

function Line({ decision }: { decision: LiveDecision }) {
  const { request, timeMs, worker, band, reject, covered, candidates } = decision
  const picked = candidates.find(({ id }) => id === worker)
  const best = Math.max(...candidates.map(({ similarity }) => similarity ?? -Infinity))
  const why = reason(decision.reason)
  return (
    <li>
      <a class="decision" href={`#decisions/${encodeURIComponent(request)}`}>
        <time>{clock(timeMs)}</time>
        <span class="request">{request}</span>
        <span class="to">
          <span aria-hidden="true">→</span> <WorkerName id={worker} />
        </span>
        <span class="why" title={why.long}>
          {why.short}
          {reject !== undefined && <span class="warn"> ({reject})</span>}
        </span>
        <span class="numbers">
          {picked?.similarity !== undefined && (
            <span title="Cosine similarity of the request to the centroid of the picked worker, and to the best centroid">
              cos {cosine(picked.similarity)}
              {picked.similarity !== best && Number.isFinite(best) && ` of ${cosine(best)}`}
            </span>
          )}
          {band !== undefined && <span title="Number of workers within τ of the best">band {band}</span>}
          {covered !== undefined && covered < 0.995 && <span>{percent(covered)} covered</span>}
        </span>
        <Loads candidates={candidates} worker={worker} />
      </a>
    </li>
  )
}

/** Requests in flight on each candidate at the time of the decision, as small columns. */
function Loads({ candidates, worker }: { candidates: readonly LiveCandidate[]; worker: string }) {
  const max = Math.max(1, ...candidates.map(({ inflight }) => inflight))
  const words = candidates.map(({ id, inflight }) => `${id} ${inflight}`).join(', ')
  return (
    <span
      class="loads"
      role="img"
      aria-label={`Requests in flight: ${words}`}
      title={`Requests in flight: ${words}`}
    >
      {candidates.slice(0, 16).map(({ id, inflight }) => (
        <i
          key={id}
          class={`${workerGroup(id)}${id === worker ? ' picked' : ''}`}
          style={{ height: `${Math.max(8, (100 * inflight) / max)}%` }}
        />
      ))}
    </span>
  )
}
