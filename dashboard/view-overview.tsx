/** Workers as columns, latency by policy, and the latest events. */
import type { LiveWorker, PacePoint, Spread, WorkerExperts } from '../src/gateway/observe/insight/wire.ts'
import { policyGroup, workerGroup } from './colours.ts'
import { Empty, Fact, Section, State } from './parts.tsx'
import { decoders, experts, clusterEvents, pace, prefillers, pulse } from './state.ts'
import { policiesIn, TimeChart } from './time-chart.tsx'
import { clock, count, eventText, micro, number, time } from './words.ts'

/** Column heights in requests, in steps, so that the scale rarely changes. */
const SCALES = [8, 16, 32, 64, 128, 256, 512, 1024, 4096]
/** Same as in the style sheet. */
const COLUMN_PX = 104
const EVENTS_SHOWN = 8

export function Overview() {
  const max = Math.max(0, ...decoders.value.map(({ inflight }) => inflight))
  const scale = SCALES.find(one => one >= max) ?? max
  const note = pulse.value?.routing.note
  return (
    <>
      {note !== undefined && <p class="notice">{note}.</p>}
      <Section title="Decode workers" aside={<p class="quiet">columns: requests in flight, up to {scale}</p>}>
        {decoders.value.length === 0 ? (
          <Empty>
            No decode workers. Start the gateway with <code>--decode URL</code>, or add one with{' '}
            <code>POST /eldr/workers</code>.
          </Empty>
        ) : (
          <ul class="columns">
            {decoders.value.map(worker => (
              <Decoder
                key={worker.id}
                worker={worker}
                scale={scale}
                own={experts.value?.workers.find(({ id }) => id === worker.id)}
              />
            ))}
          </ul>
        )}
      </Section>
      <Section title="Prefill workers">
        {prefillers.value.length === 0 ? (
          <Empty>
            No prefill workers. Start the gateway with <code>--prefill URL</code>.
          </Empty>
        ) : (
          <ul class="rows">
            {prefillers.value.map(({ id, state, inflight, recentMs, recentCount }) => (
              <li key={id} class="card" data-worker={id}>
                <h3>{id}</h3>
                <State state={state} />
                <span>
                  <b data-fact="inflight">{inflight}</b> in flight
                </span>
                <span title={`${count(recentCount, 'prompt')} in the last 10 s`}>
                  <b>{time(recentMs)}</b> per prompt
                </span>
              </li>
            ))}
          </ul>
        )}
      </Section>
      <Speed />
      <Section title="Events">
        {clusterEvents.value.length === 0 ? (
          <Empty>No events yet: changes to workers and routing appear here.</Empty>
        ) : (
          <ol class="log">
            {clusterEvents.value
              .toReversed()
              .slice(0, EVENTS_SHOWN)
              .map(one => (
                <li key={one.number}>
                  <time>{clock(one.atMs)}</time> {eventText(one)}
                </li>
              ))}
          </ol>
        )}
      </Section>
    </>
  )
}

export function stateOf({ state }: LiveWorker, own: WorkerExperts | undefined): string {
  return own?.answered === false && (state === 'ready' || state === 'draining') ? 'silent' : state
}

function Decoder({
  worker,
  scale,
  own,
}: {
  worker: LiveWorker
  scale: number
  own: WorkerExperts | undefined
}) {
  const { id, inflight, tokens, recentMs, recentCount, cluster, stepCost } = worker
  const all = experts.value?.experts ?? 0
  const active = own?.active
  const mean =
    active === undefined || active.length === 0
      ? undefined
      : active.reduce((sum, one) => sum + one, 0) / active.length
  const idle = own?.batch === 0
  return (
    <li class={`card column ${workerGroup(id)}`} data-worker={id}>
      <h3>{id}</h3>
      <p class="under">
        <State state={stateOf(worker, own)} />
        {cluster !== undefined && <span class="quiet">cluster {cluster}</span>}
      </p>
      <div
        class="stack"
        aria-hidden="true"
        style={{ '--share': String(Math.min(1, inflight / scale)), '--unit': `${COLUMN_PX / scale}px` }}
      >
        <i class={scale <= 16 ? 'ticked' : ''} />
      </div>
      <dl>
        <Fact name="In flight" value={inflight} note={`${number(tokens)} prompt tokens`} fact="inflight" />
        <Fact
          name="Active experts per step"
          value={mean === undefined || idle ? '–' : number(mean)}
          note={
            mean === undefined ? 'not reported by its engine' : `of ${all || '?'}, batch ${own?.batch ?? '–'}`
          }
          fact="active"
        />
        <Fact
          name="TPOT"
          value={time(recentMs)}
          note={recentCount === 0 ? 'no stream finished in 10 s' : `${count(recentCount, 'stream')} in 10 s`}
          fact="tpot"
        />
        {stepCost !== undefined && (
          <Fact
            name="Learnt step cost"
            value={time(stepCost.baseMs)}
            note={`+ ${micro(stepCost.perExpertMs)} per expert, ${micro(stepCost.perRequestMs)} per request`}
            fact="cost"
          />
        )}
      </dl>
    </li>
  )
}

function Speed() {
  const points = pace.value
  const policies = policiesIn(points)
  return (
    <Section title="Latency by policy" aside={<p class="quiet">median solid, 95th percentile dashed</p>}>
      {points.length === 0 ? (
        <Empty>
          No streams yet. Send one:{' '}
          <code>{`curl ${location.origin}/v1/completions -d '{"prompt":"Hello","stream":true}'`}</code>
        </Empty>
      ) : (
        <>
          <div class="pair">
            <TimeChart measure="tpot" label="TPOT, time per output token" />
            <TimeChart measure="ttft" label="TTFT, time to first token" />
          </div>
          <div class="scroll" tabIndex={0} role="region" aria-label="Latency by policy, table">
            <table>
              <thead>
                <tr>
                  <th>policy</th>
                  <th class="number">streams</th>
                  <th class="number">TPOT median</th>
                  <th class="number">TPOT 95 %</th>
                  <th class="number">TTFT median</th>
                  <th class="number">TTFT 95 %</th>
                </tr>
              </thead>
              <tbody>
                {policies.map(policy => (
                  <Row
                    key={policy}
                    policy={policy}
                    points={points.filter(point => point.policy === policy)}
                  />
                ))}
              </tbody>
            </table>
          </div>
          <p class="quiet">
            Each row covers the last minute in which the policy placed a stream. Times are wall time measured
            at the gateway.
          </p>
        </>
      )}
    </Section>
  )
}

const LAST_MS = 60_000

/** Values over the last minute of a policy: quantiles of time slices, weighted by their number of streams. */
export function lastMinute(points: readonly PacePoint[], measure: 'ttft' | 'tpot'): Spread | undefined {
  const last = Math.max(...points.filter(point => point[measure] !== undefined).map(({ fromMs }) => fromMs))
  const spreads = points.flatMap(point =>
    point.fromMs > last - LAST_MS && point[measure] ? [point[measure]] : [],
  )
  const all = spreads.reduce((sum, one) => sum + one.count, 0)
  if (all === 0) return undefined
  const weighted = (key: 'mean' | 'p50' | 'p95') =>
    spreads.reduce((sum, one) => sum + one[key] * one.count, 0) / all
  return { count: all, mean: weighted('mean'), p50: weighted('p50'), p95: weighted('p95') }
}

function Row({ policy, points }: { policy: string; points: readonly PacePoint[] }) {
  const [tpot, ttft] = [lastMinute(points, 'tpot'), lastMinute(points, 'ttft')]
  return (
    <tr data-policy={policy}>
      <th>
        <i class={`swatch ${policyGroup(policy)}`} aria-hidden="true" /> {policy}
      </th>
      <td class="number">{number(tpot?.count ?? 0)}</td>
      <td class="number">{time(tpot?.p50)}</td>
      <td class="number">{time(tpot?.p95)}</td>
      <td class="number">{time(ttft?.p50)}</td>
      <td class="number">{time(ttft?.p95)}</td>
    </tr>
  )
}
