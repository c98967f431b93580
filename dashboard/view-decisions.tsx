/** Decisions as they are made: where, why, and what else there was. */
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
  // What somebody points at, or has come to by keyboard, must not move away.
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
              {paused.value ? `Go on (${number(heldBack.value)} missed)` : 'Pause'}
            </button>
          </div>
        }
      >
        <Sampling />
        {shown.length === 0 ? (
          <Empty>
            {only.value === ''
              ? 'No decision yet: they come with the first requests to /v1.'
              : 'None with this reason among those shown.'}
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
              // By place: words change where they stand, and nothing is moved about.
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
        ? `All decisions are shown: ${number(made)} a second.`
        : `A sample: ${number(shown)} of ${number(made)} decisions a second (${percent(shown / made)}), each with the same chance.`}{' '}
      Choose one for its whole story.
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
      title="Why"
      aside={
        <p class="quiet">
          the last {Math.round(health.seconds / 60) || 1} min, {number(all)} decisions
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
            <span title="Cosine of the request to the centroid of the picked worker, and to the best one">
              cos {cosine(picked.similarity)}
              {picked.similarity !== best && Number.isFinite(best) && ` of ${cosine(best)}`}
            </span>
          )}
          {band !== undefined && <span title="Workers within τ of the best">band {band}</span>}
          {covered !== undefined && covered < 0.995 && <span>{percent(covered)} covered</span>}
        </span>
        <Loads candidates={candidates} worker={worker} />
      </a>
    </li>
  )
}

/** Requests on each candidate when it was decided, as small columns. */
function Loads({ candidates, worker }: { candidates: readonly LiveCandidate[]; worker: string }) {
  const most = Math.max(1, ...candidates.map(({ inflight }) => inflight))
  const words = candidates.map(({ id, inflight }) => `${id} ${inflight}`).join(', ')
  return (
    <span class="loads" role="img" aria-label={`Loads: ${words}`} title={`Requests in flight: ${words}`}>
      {candidates.slice(0, 16).map(({ id, inflight }) => (
        <i
          key={id}
          class={`${workerGroup(id)}${id === worker ? ' picked' : ''}`}
          style={{ height: `${Math.max(8, (100 * inflight) / most)}%` }}
        />
      ))}
    </span>
  )
}
