/** Details of one request: its legs over time, the candidates of its decision, and its outcome. */
import { useSignal } from '@preact/signals'
import { useEffect, useRef } from 'preact/hooks'
import type { LegView, LiveDecision, RequestView, StoryView } from '../src/gateway/observe/insight/wire.ts'
import { ApiError, ask } from './api.ts'
import { Fact, WorkerName } from './parts.tsx'
import { decisions } from './state.ts'
import { clock, cosine, number, OUTCOMES, percent, reason, time } from './words.ts'

const POLL_MS = 1_000

export function StoryDialog({ id }: { id: string }) {
  const dialog = useRef<HTMLDialogElement>(null)
  const found = useSignal<RequestView | undefined>(undefined)
  const missing = useSignal('')
  // Parts of a split request have its id followed by their number.
  const seen = decisions.peek().filter(({ request }) => request === id)
  useEffect(() => {
    dialog.current!.showModal()
    let timer: ReturnType<typeof setTimeout> | undefined
    let gone = false
    async function look(): Promise<void> {
      try {
        found.value = await ask<RequestView>(`requests/${encodeURIComponent(id)}`)
        missing.value = ''
      } catch (error) {
        missing.value = error instanceof ApiError ? error.message : 'The gateway does not respond.'
      }
      if (!gone && found.value?.story?.endMs === undefined && missing.value === '')
        timer = setTimeout(look, POLL_MS)
    }
    void look()
    return () => {
      gone = true
      clearTimeout(timer)
    }
  }, [id])
  const story = found.value?.story
  const made = found.value?.decisions ?? seen
  return (
    <dialog
      ref={dialog}
      aria-labelledby="story-title"
      onClose={() => (location.hash = '#decisions')}
      onClick={closeOutside}
    >
      <div class="story">
        <div class="heading">
          <h2 id="story-title">
            Request <code>{id}</code>
          </h2>
          <button type="button" class="close" aria-label="Close" onClick={() => dialog.current!.close()}>
            ×
          </button>
        </div>
        {story !== undefined && <Legs story={story} />}
        {missing.value !== '' && (
          <p class="notice">
            {missing.value} Only recent requests are kept (<code>observe.decisionsKept</code>).
          </p>
        )}
        {made.map(decision => (
          <DecisionDetails key={`${decision.request} ${decision.timeMs}`} decision={decision} />
        ))}
      </div>
    </dialog>
  )
}

function closeOutside(event: MouseEvent): void {
  if (event.target === event.currentTarget) (event.currentTarget as HTMLDialogElement).close()
}

function Legs({ story }: { story: StoryView }) {
  const { legs, startedMs, firstMs, endMs, outcome, status, promptTokens, stream, maxTokens, route } = story
  const { resumes, pauseMs, notResumed } = story
  const lastMs = Math.max(
    endMs ?? 0,
    ...legs.map(({ toMs, firstMs: first, fromMs }) => toMs ?? first ?? fromMs),
    1,
  )
  const decode = legs.findLast(({ leg, tokens }) => leg === 'decode' && tokens !== undefined)
  const tpot =
    decode?.firstMs !== undefined && decode.toMs !== undefined && decode.tokens! > 1
      ? (decode.toMs - decode.firstMs) / (decode.tokens! - 1)
      : undefined
  return (
    <>
      <dl class="facts">
        <Fact
          name="Outcome"
          value={
            outcome === undefined
              ? 'running'
              : `${OUTCOMES[outcome] ?? outcome}${status === undefined ? '' : ` (${status})`}`
          }
          note={notResumed === undefined ? undefined : `not resumed: ${notResumed}`}
          fact="outcome"
        />
        <Fact
          name="Arrived"
          value={clock(startedMs)}
          note={`${route}${stream === true ? ', streamed' : ''}`}
        />
        <Fact
          name="Prompt"
          value={promptTokens === undefined ? '–' : `${number(promptTokens)} tokens`}
          note={maxTokens === undefined ? undefined : `max ${number(maxTokens)} output tokens`}
        />
        <Fact name="TTFT" value={time(firstMs)} />
        <Fact
          name="TPOT"
          value={time(stream === true ? tpot : undefined)}
          note={
            decode?.tokens === undefined
              ? undefined
              : `${number(decode.tokens)} ${stream === true ? 'events' : 'tokens'}`
          }
        />
        {resumes !== undefined && (
          <Fact name="Resumed" value={`${number(resumes)} ×`} note={`longest pause ${time(pauseMs)}`} />
        )}
        <Fact name="Total" value={time(endMs)} />
      </dl>
      <h3>Legs</h3>
      <ol class="legs">
        {legs.map((leg, at) => (
          <Leg key={at} leg={leg} lastMs={lastMs} />
        ))}
      </ol>
    </>
  )
}

const LEG_ENDS: Readonly<Record<string, string>> = {
  handed_off: 'handed off',
  served: 'served',
  failed: 'failed',
  refused: 'rejected',
  stopped: 'stopped',
  fault: 'internal error of the gateway',
}

function Leg({
  leg: { leg, worker, attempt, part, fromMs, firstMs, toMs, outcome, why, tokens },
  lastMs,
}: {
  leg: LegView
  lastMs: number
}) {
  const at = (ms: number) => `${(100 * ms) / lastMs}%`
  const untilMs = toMs ?? lastMs
  return (
    <li>
      <p>
        <b>{leg}</b> <WorkerName id={worker} />
        {attempt > 1 && <span> attempt {attempt}</span>}
        {part !== undefined && <span class="quiet"> part {part}</span>}
        <span class={outcome === 'failed' ? 'warn' : 'quiet'}>
          {' '}
          {outcome === undefined ? 'running' : (LEG_ENDS[outcome] ?? outcome)}
        </span>
        {why !== undefined && <span class="warn">: {why}</span>}
      </p>
      <div class="track" aria-hidden="true">
        <i
          class={`span ${leg}`}
          style={{ left: at(fromMs), width: at(Math.max(untilMs - fromMs, lastMs / 250)) }}
        />
        {firstMs !== undefined && <i class="first" style={{ left: at(firstMs) }} />}
      </div>
      <p class="quiet">
        from {time(fromMs)}
        {firstMs !== undefined && `, first token at ${time(firstMs)}`}
        {toMs !== undefined && `, to ${time(toMs)} (${time(toMs - fromMs)})`}
        {tokens !== undefined &&
          tokens > 0 &&
          `, ${number(tokens)} ${firstMs === undefined ? 'tokens' : 'events'}`}
      </p>
    </li>
  )
}

function DecisionDetails({ decision }: { decision: LiveDecision }) {
  const { policy, worker, band, reject, covered, candidates, timeMs } = decision
  const why = reason(decision.reason)
  const compared = candidates.some(({ similarity }) => similarity !== undefined)
  return (
    <>
      <h3>Decision</h3>
      <p>
        At {clock(timeMs)} the policy <b>{policy}</b> picked <WorkerName id={worker} />: <b>{why.short}</b>.{' '}
        {why.long}
        {band !== undefined && ` ${band} of ${candidates.length} workers were in the band.`}
        {covered !== undefined && ` Expert counts cover ${percent(covered)} of the prompt.`}
        {reject !== undefined && ` The expert counts of the hand-off were not used: ${reject}.`}
      </p>
      <div class="scroll" tabIndex={0} role="region" aria-label="Candidates, table">
        <table>
          <thead>
            <tr>
              <th>candidate</th>
              <th class="number">requests in flight</th>
              {compared && <th class="number">cosine to its centroid</th>}
            </tr>
          </thead>
          <tbody>
            {candidates.map(({ id, inflight, similarity }) => (
              <tr key={id} class={id === worker ? 'picked' : ''}>
                <th>
                  <WorkerName id={id} />
                  {id === worker && <span class="quiet"> picked</span>}
                </th>
                <td class="number">{inflight}</td>
                {compared && <td class="number">{cosine(similarity)}</td>}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  )
}
