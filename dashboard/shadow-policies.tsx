/** What shadow policies would have decided, beside the policy in force, and a running experiment. */
import type { ShadowRow } from '../src/gateway/observe/insight/wire.ts'
import { Empty, Section } from './parts.tsx'
import { experiment, shadow } from './state.ts'
import { clock, count, number, percent, time } from './words.ts'

export function ShadowPolicies() {
  const now = shadow.value
  if (now === undefined) return undefined
  const { inForce, sinceMs, requests, shadows } = now
  const isSet = shadows.length > 0
  return (
    <Section
      title="Shadow policies"
      aside={
        isSet && (
          <p class="quiet" data-fact="shadow-requests">
            {count(requests, 'request')} under {inForce} since {clock(sinceMs)}
          </p>
        )
      }
    >
      <Experiment />
      {isSet ? (
        <>
          <Figures rows={shadows} requests={requests} inForce={inForce} />
          <p class="quiet">
            Expected means over the judged requests: those whose experts could be predicted. Experts are those
            of a step with the request, per layer; an emptier worker has fewer. Cost is the time of that step,
            and what the request adds to it for each of the others there. Shadow policies skip requests when
            their CPU time is spent. Batches are those that {inForce} has made: a policy that gathers similar
            requests, such as eldr, finds none gathered and may look worse than it is. An experiment decides.
          </p>
        </>
      ) : (
        <Empty>
          No shadow policies are set. To compare policies with the one in force, without effect on requests,
          start the gateway with <code>--shadow jsq union</code> or set <code>routing.shadow</code>.
        </Empty>
      )}
    </Section>
  )
}

function Experiment() {
  const now = experiment.value
  if (now?.running !== true) return undefined
  const { policies = [], slot = 0, policy, restores } = now
  return (
    <p class="notice" data-fact="experiment">
      An experiment compares {policies.join(', ')}: {slot === 0 ? 'before its first slot' : `slot ${slot}`},{' '}
      {policy} in force. At its end {restores} is restored.
    </p>
  )
}

interface FiguresProps {
  readonly rows: readonly ShadowRow[]
  readonly requests: number
  readonly inForce: string
}

function Figures({ rows, requests, inForce }: FiguresProps) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Figures of shadow policies">
      <table>
        <thead>
          <tr>
            <th>policy</th>
            <th class="number">agreement</th>
            <th class="number">experts</th>
            <th class="number">under {inForce}</th>
            <th class="number">cost</th>
            <th class="number">under {inForce}</th>
            <th class="number">difference</th>
            <th class="number">judged</th>
            <th class="number">skipped</th>
            <th>state</th>
          </tr>
        </thead>
        <tbody>
          {rows.map(row => (
            <Row key={row.policy} row={row} requests={requests} />
          ))}
        </tbody>
      </table>
    </div>
  )
}

function Row({ row, requests }: { row: ShadowRow; requests: number }) {
  const { policy, state, decisions, agreed, judged, experts, costUs } = row
  const cells = [
    percent(agreed / decisions),
    experts === undefined ? '–' : number(experts.shadow),
    experts === undefined ? '–' : number(experts.inForce),
    costUs === undefined ? '–' : time(costUs.shadow / 1000),
    costUs === undefined ? '–' : time(costUs.inForce / 1000),
    percent(costUs && costUs.shadow / costUs.inForce - 1, 1),
    number(judged),
    state === 'deciding' ? number(requests - decisions) : '–',
  ]
  return (
    <tr data-shadow={policy}>
      <th>{policy}</th>
      {cells.map((cell, at) => (
        <td key={at} class="number">
          {cell}
        </td>
      ))}
      <td>{stateText(row)}</td>
    </tr>
  )
}

function stateText({ state, why }: ShadowRow): string {
  if (state === 'deciding') return state
  if (state === 'failed') return `failed: ${why}. It decides again after the next change of routing.`
  return why === undefined ? 'waiting' : `waiting: needs ${why}`
}
