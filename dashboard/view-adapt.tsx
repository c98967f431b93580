/**
 * Live recalibration: drift over time, the sample, what a refit would give, and past swaps with undo. Below
 * it what other policies would do, and a running experiment.
 */
import { useSignal } from '@preact/signals'
import type { AdaptAttempt, AdaptSwap, AdaptView } from '../src/gateway/observe/insight/wire.ts'
import { ApiError, change } from './api.ts'
import { DriftChart } from './drift-chart.tsx'
import { Empty, Fact, Section } from './parts.tsx'
import { ShadowPolicies } from './shadow-policies.tsx'
import { adapt, mayChange } from './state.ts'
import { clock, number, percent, time } from './words.ts'

const STATE_WORDS: Readonly<Record<AdaptView['state'], string>> = {
  off: 'Live recalibration is off. Start the gateway with --adapt suggest or --adapt on.',
  idle: 'There is nothing to adapt.',
  steady: 'Live requests resemble the calibration requests: the artifact fits.',
  drifting: 'Live requests have drifted away from the artifact.',
  refitting: 'Refitting from the sample.',
  swapping: 'Swapping the artifact.',
  watching: 'The artifact was swapped. p99 TPOT is watched; if it gets worse, the swap is rolled back.',
  held: 'On hold.',
}
const LEVELS: Partial<Record<AdaptView['state'], string>> = { steady: 'well', drifting: 'ill', held: 'ill' }
const VERDICTS: Readonly<Record<AdaptAttempt['verdict'], string>> = {
  swap: 'worth a swap',
  suggest: 'worth a swap',
  no_gain: 'not worth a swap',
  failed: 'failed',
}
const SWAP_STATES: Readonly<Record<AdaptSwap['state'], string>> = {
  in_force: 'in force',
  past: 'replaced',
  undone: 'undone',
  rolled_back: 'rolled back',
}

export function Adapt() {
  const said = useSignal('')
  const busy = useSignal(false)
  const now = adapt.value
  if (now === undefined) return <Empty>Waiting for the state of live recalibration…</Empty>
  async function run(path: string, done: string): Promise<void> {
    busy.value = true
    try {
      adapt.value = await change<AdaptView>('POST', path)
      said.value = done
    } catch (error) {
      said.value = error instanceof ApiError ? error.message : 'The gateway does not respond.'
    }
    busy.value = false
  }
  const off = !mayChange.value || busy.value
  return (
    <>
      <p class="said" role="status" data-fact="said">
        {busy.value ? 'Applying…' : said.value}
      </p>
      <Drift view={now} />
      {now.sample !== undefined && <Sample view={now} />}
      <Refit view={now} off={off} take={() => run('adapt/swap', 'Swapped to the suggested artifact.')} />
      <Swaps
        swaps={now.swaps}
        off={off}
        undo={() => run('adapt/undo', 'Returned to the artifact before the swap.')}
      />
      <ShadowPolicies />
    </>
  )
}

function Drift({ view: { mode, state, note, problem, drift } }: { view: AdaptView }) {
  return (
    <Section title="Drift" aside={<p class="quiet">mode {mode}</p>}>
      <p class={`verdict ${LEVELS[state] ?? 'open'}`} data-fact="adapt-state" data-state={state}>
        {STATE_WORDS[state]} {note}
      </p>
      {problem !== undefined && (
        <p class="notice" data-fact="adapt-problem">
          {problem}
        </p>
      )}
      {drift === undefined ? undefined : drift.history.length === 0 ? (
        <Empty>No request has been compared with the artifact yet.</Empty>
      ) : (
        <>
          <dl class="facts">
            <Fact
              name="Mean rank"
              value={drift.meanRank?.toFixed(2) ?? '–'}
              note="of recent requests; about 0.5 while the artifact fits"
              fact="rank"
            />
            <Fact
              name="Drift"
              value={drift.sinceMs === undefined ? 'none' : `since ${clock(drift.sinceMs)}`}
              fact="drift"
            />
          </dl>
          <DriftChart points={drift.history} sinceMs={drift.sinceMs} />
        </>
      )}
    </Section>
  )
}

function Sample({ view: { sample, drift } }: { view: AdaptView }) {
  const { requests, capacity, halfLifeMs, bytes, reported, needed, usable } = sample!
  return (
    <Section title="Sample" aside={<p class="quiet">expert counts only, no text</p>}>
      <dl class="facts">
        <Fact
          name="Requests"
          value={number(requests)}
          note={`of ${number(capacity)}; half-life ${time(halfLifeMs)}`}
          fact="sample"
        />
        <Fact
          name="With decode counts"
          value={percent(requests === 0 ? undefined : reported / requests)}
          note={`${number(reported)} reported by workers`}
          fact="reported"
        />
        <Fact name="Memory" value={`${number(bytes / 1e6)} MB`} />
        {drift?.sinceMs !== undefined && (
          <Fact name="Since the drift" value={number(usable)} note={`a refit needs ${number(needed)}`} />
        )}
      </dl>
    </Section>
  )
}

function Refit({ view: { last, suggestion }, off, take }: { view: AdaptView; off: boolean; take(): void }) {
  return (
    <Section title="What a refit would give">
      {last === undefined ? (
        <Empty>No refit has been tried: that happens after a drift.</Empty>
      ) : last.gain === undefined ? (
        <p class="notice">
          {clock(last.atMs)}: failed. {last.problem}
        </p>
      ) : (
        <dl class="facts">
          <Fact
            name="Predicted gain"
            value={`${percent(last.gain, 1)} ± ${percent(last.gainHalf, 1)}`}
            note={`of the time of a decode step; ${VERDICTS[last.verdict]}${suggestion ? ': take it below, or set adapt.mode to on' : ''}`}
            fact="gain"
          />
          <Fact
            name="Judged by"
            value={`${last.judgedBy} decode counts`}
            note={`${number(last.heldOut ?? 0)} requests; fitted on ${number(last.fitted ?? 0)}`}
          />
          <Fact
            name="Change their home"
            value={`${number(last.moved ?? 0)} of ${number(last.inflight ?? 0)}`}
            note="requests in flight"
          />
          <Fact name="Tried" value={clock(last.atMs)} note={`took ${time(1000 * last.seconds)}`} />
        </dl>
      )}
      {suggestion && (
        <p>
          <button type="button" class="main" disabled={off} onClick={take} data-do="swap">
            Swap to it
          </button>
        </p>
      )}
    </Section>
  )
}

function Swaps({ swaps, off, undo }: { swaps: readonly AdaptSwap[]; off: boolean; undo(): void }) {
  return (
    <Section title="Swaps">
      {swaps.length === 0 ? (
        <Empty>The artifact has not been swapped.</Empty>
      ) : (
        <div class="scroll" tabIndex={0} role="region" aria-label="Swaps">
          <table>
            <thead>
              <tr>
                <th>time</th>
                <th>state</th>
                <th class="number">predicted gain</th>
                <th>judged by</th>
                <th class="number">p99 TPOT before</th>
                <th class="number">after</th>
                <th class="number">requests</th>
                <th>artifact</th>
                <th>
                  <span class="unseen">undo</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {swaps.map(swap => (
                <tr key={swap.sha256} data-swap={swap.sha256}>
                  <th>{clock(swap.atMs)}</th>
                  <td>{SWAP_STATES[swap.state]}</td>
                  <td class="number">
                    {percent(swap.gain, 1)} ± {percent(swap.gainHalf, 1)}
                  </td>
                  <td>{swap.judgedBy}</td>
                  <td class="number">{time(swap.p99BeforeMs)}</td>
                  <td class="number">{time(swap.p99AfterMs)}</td>
                  <td class="number">{number(swap.sampleRequests)}</td>
                  <td title={swap.file}>
                    <code>{swap.sha256.slice(0, 8)}</code> from <code>{swap.parentSha256.slice(0, 8)}</code>
                  </td>
                  <td>
                    {swap.state === 'in_force' && (
                      <button type="button" disabled={off} onClick={undo} data-do="undo">
                        Undo
                      </button>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {off && swaps.some(({ state }) => state === 'in_force') && (
        <p class="quiet">
          Changes are locked: see <a href="#control">Control</a>.
        </p>
      )}
    </Section>
  )
}
