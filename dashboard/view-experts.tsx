/** Which experts each decode worker fires, layer by layer, and how workers differ: what routing is for. */
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
  ['difference', 'Against the others'],
]

export function Experts() {
  const mode = useSignal<Mode>('recent')
  const cursor = useSignal<{ readonly layer: number; readonly expert: number } | undefined>(undefined)
  const all = experts.value
  if (all === undefined) return <Empty>Asking the workers …</Empty>
  if (all.workers.length === 0) return <Empty>No decode worker.</Empty>
  const estimates = all.workers.some(({ expected }) => expected !== undefined)
  const chosen = mode.value === 'expected' && !estimates ? 'recent' : mode.value
  const shares = sharesOf(all, chosen)
  const ids = [...shares.keys()]
  const drawn =
    chosen === 'difference'
      ? new Map(ids.map((id, at) => [id, againstOthers([...shares.values()], at)]))
      : shares
  const options = estimates ? ([...MODES, ['expected', 'Expected by union']] as const) : MODES
  return (
    <>
      <Section
        title="Experts of each decode worker"
        aside={
          ids.length > 0 && (
            <Choice
              label="What is drawn"
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
                label={`${worker.union === undefined ? 'expected by union: ' : ''}${number(activePerLayer(shares.get(worker.id)!, all.layers))} of ${all.experts} experts a layer`}
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
  const shape = `Rows are the ${layers} MoE layers, columns their ${width} experts; a token uses ${topK} of a layer.`
  if (mode === 'now') return `${shape} Filled: at least one request of the last decode step used it.`
  if (mode === 'difference') return `${shape} Share of steps less the mean of the other workers.`
  if (mode === 'expected')
    return `${shape} Chance that a step uses it, as the policy union estimates from the requests in flight.`
  return `${shape} The stronger its colour, the more of the decode steps that were looked at in the last 15 s used it.`
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

/** Not every engine says which experts it runs: what it says is shown, and what would help. */
function NoMap({ worker, experts: all }: { worker: WorkerExperts; experts: number }) {
  const { id, answered, active, union } = worker
  return (
    <figure class="card map" data-worker={id}>
      <figcaption>
        <WorkerName id={id} />
      </figcaption>
      {!answered ? (
        <p class="empty">This worker does not answer.</p>
      ) : union !== undefined ? (
        <p class="empty">It decodes nothing now.</p>
      ) : active === undefined ? (
        <p class="empty">
          Its engine does not tell. With eldr-vllm in vLLM there are numbers by layer; with{' '}
          <code>--policy union</code> the gateway’s own estimate is drawn.
        </p>
      ) : (
        <>
          <p class="quiet">
            Its engine gives numbers by layer only; the policy union would give an estimate by expert.
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
          <i class="less" aria-hidden="true" /> the others more <i class="none" aria-hidden="true" /> the same{' '}
          <i class="full" aria-hidden="true" /> this worker more
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
      title="What workers have in common"
      aside={<p class="quiet">policy {pulse.value?.routing.policy}</p>}
    >
      <p class="quiet">
        Experts that two workers share, of those that either uses. The less, the more each worker keeps to
        experts of its own.
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
