/** Experts that each decode worker uses, by layer, and how workers differ. */
import { useSignal } from '@preact/signals'
import type { ExpertsView, WorkerExperts } from '../src/gateway/observe/insight/wire.ts'
import { activePerLayer, againstOthers, overlap } from './cells.ts'
import { HeatMap } from './heat-map.tsx'
import { type Mode, sharesOf } from './looks.ts'
import { Choice, Empty, Section, Swatch, WorkerName } from './parts.tsx'
import { experts, pulse } from './state.ts'
import { number, percent } from './words.ts'

const MODES: readonly (readonly [Mode, string])[] = [
  ['now', 'Now'],
  ['recent', 'Last 15 s'],
  ['difference', 'Compared with others'],
]

export function Experts() {
  const mode = useSignal<Mode>('recent')
  const cursor = useSignal<{ readonly layer: number; readonly expert: number } | undefined>(undefined)
  const all = experts.value
  if (all === undefined) return <Empty>Loading data from the workers…</Empty>
  if (all.workers.length === 0) return <Empty>No decode workers.</Empty>
  const estimates = all.workers.some(({ expected }) => expected !== undefined)
  const chosen = mode.value === 'expected' && !estimates ? 'recent' : mode.value
  const shares = sharesOf(all, chosen)
  const ids = [...shares.keys()]
  const drawn =
    chosen === 'difference'
      ? new Map(ids.map((id, at) => [id, againstOthers([...shares.values()], at)]))
      : shares
  const options = estimates ? ([...MODES, ['expected', 'Estimated by union']] as const) : MODES
  return (
    <>
      <Section
        title="Experts of each decode worker"
        aside={
          ids.length > 0 && (
            <Choice
              label="Values to show"
              value={chosen}
              options={options}
              onChange={name => (mode.value = name)}
            />
          )
        }
      >
        {ids.length > 0 && (
          <>
            <p class="quiet">{explain(chosen, all)}</p>
            <Readout view={all} shares={shares} cursor={cursor.value} />
          </>
        )}
        <div class="maps">
          {all.workers.map(worker => {
            const cells = drawn.get(worker.id)
            return cells === undefined ? (
              <NoMap key={worker.id} worker={worker} experts={all.experts} />
            ) : (
              <HeatMap
                key={worker.id}
                worker={worker.id}
                layers={all.layers}
                experts={all.experts}
                cells={cells}
                diverging={chosen === 'difference'}
                label={`${worker.union === undefined ? 'estimated by union: ' : ''}${number(activePerLayer(shares.get(worker.id)!, all.layers))} of ${all.experts} experts per layer`}
                cursor={cursor.value}
                onCursor={next => (cursor.value = next)}
              />
            )
          })}
        </div>
        {ids.length > 0 && <Legend mode={chosen} />}
      </Section>
      {ids.length > 1 && <Overlap shares={shares} />}
    </>
  )
}

function explain(mode: Mode, { layers, experts: width, topK }: ExpertsView): string {
  const shape = `Rows are the ${layers} MoE layers, columns their ${width} experts; a token uses ${topK} per layer.`
  if (mode === 'now') return `${shape} Filled: used by at least one request in the last decode step.`
  if (mode === 'difference') return `${shape} Share of steps minus the mean of the other workers.`
  if (mode === 'expected')
    return `${shape} Probability that a step uses it, estimated by the policy union from the requests in flight.`
  return `${shape} Stronger colour: used in more of the decode steps sampled in the last 15 s.`
}

function Readout({
  view,
  shares,
  cursor,
}: {
  view: ExpertsView
  shares: ReadonlyMap<string, Float32Array>
  cursor: { layer: number; expert: number } | undefined
}) {
  return (
    <p class="cellreadout" aria-live="polite">
      {cursor === undefined ? (
        <span class="quiet">Point at a cell, or move with the arrow keys.</span>
      ) : (
        <>
          <b>
            layer {cursor.layer}, expert {cursor.expert}
          </b>
          {[...shares].map(([id, cells]) => (
            <span key={id}>
              <Swatch worker={id} /> {id} {percent(cells[cursor.layer * view.experts + cursor.expert])}
            </span>
          ))}
        </>
      )}
    </p>
  )
}

/** For engines that do not report their experts: shows what they report and how to get more. */
function NoMap({ worker, experts: all }: { worker: WorkerExperts; experts: number }) {
  const { id, answered, active, union } = worker
  return (
    <figure class="card map" data-worker={id}>
      <figcaption>
        <WorkerName id={id} />
      </figcaption>
      {!answered ? (
        <p class="empty">This worker does not respond.</p>
      ) : union !== undefined ? (
        <p class="empty">Idle: no request is decoding.</p>
      ) : active === undefined ? (
        <p class="empty">
          Its engine does not report experts. With the eldr-vllm plugin, vLLM reports numbers per layer; with{' '}
          <code>--policy union</code> the gateway shows its own estimate.
        </p>
      ) : (
        <>
          <p class="quiet">
            Its engine reports numbers per layer only; with the policy union there is an estimate per expert.
          </p>
          <ol class="layers">
            {active.map((one, layer) => (
              <li key={layer}>
                <span>layer {layer}</span> <meter min={0} max={all || Math.max(...active)} value={one} />{' '}
                {number(one)}
              </li>
            ))}
          </ol>
        </>
      )}
    </figure>
  )
}

function Legend({ mode }: { mode: Mode }) {
  return (
    <p class="heatlegend">
      {mode === 'difference' ? (
        <>
          <i class="less" aria-hidden="true" /> others use it more <i class="none" aria-hidden="true" /> equal{' '}
          <i class="full" aria-hidden="true" /> this worker uses it more
        </>
      ) : (
        <>
          <i class="none" aria-hidden="true" /> never <i class="half" aria-hidden="true" /> half of the steps{' '}
          <i class="full" aria-hidden="true" /> every step
        </>
      )}
    </p>
  )
}

function Overlap({ shares }: { shares: ReadonlyMap<string, Float32Array> }) {
  const all = [...shares]
  return (
    <Section
      title="Overlap between workers"
      aside={<p class="quiet">policy {pulse.value?.routing.policy}</p>}
    >
      <p class="quiet">
        Share of experts that both workers use, among those that either uses. Lower values mean that workers
        specialise more.
      </p>
      <div class="scroll" tabIndex={0} role="region" aria-label="Overlap of workers, table">
        <table class="overlap">
          <thead>
            <tr>
              <td />
              {all.map(([id]) => (
                <th key={id} class="number">
                  <WorkerName id={id} />
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {all.map(([row, cells]) => (
              <tr key={row}>
                <th>
                  <WorkerName id={row} />
                </th>
                {all.map(([column, others]) => (
                  <td key={column} class="number">
                    {row === column ? '' : percent(overlap(cells, others))}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Section>
  )
}
