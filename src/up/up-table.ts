/** The table of `eldr up`: current workers and totals per policy. */
import { fixed, percent, whole } from '../report/numbers.ts'
import { table } from '../report/table.ts'
import { bytes, type Terminal } from '../report/terminal.ts'
import { type DecodeWork, meanStep } from './decode-work.ts'
import type { ObservedWorker } from './observe.ts'

export interface UpView {
  readonly policy: string | undefined
  /** Workers, each with its work since the last observation. */
  readonly workers: readonly { readonly seen: ObservedWorker; readonly work: DecodeWork }[]
  readonly policies: readonly (readonly [policy: string, work: DecodeWork])[]
}

const right = (title: string) => ({ title, align: 'right' as const })
const NONE = '·'

export function upTable(view: UpView, terminal: Terminal): string[] {
  return [workerTable(view, terminal), policyTable(view, terminal)].join('\n\n').split('\n')
}

function workerTable({ workers }: UpView, terminal: Terminal): string {
  const columns = [
    { title: 'worker' },
    { title: 'state' },
    ...['in flight', 'batch', 'experts', 'TPOT ms', 'tokens/s', 'memory'].map(right),
  ]
  const rows = workers.map(({ seen, work }) => {
    const step = meanStep(work)
    const figures =
      step === undefined
        ? [NONE, NONE, NONE, NONE]
        : [
            fixed(step.batch, 1),
            fixed(step.active, 1),
            fixed(step.tpotMs, 2),
            whole(work.tokens / work.seconds),
          ]
    const state = seen.state === 'ready' ? seen.state : terminal.warn(seen.state)
    return [
      seen.name,
      state,
      whole(seen.inflight),
      ...figures,
      seen.own === undefined ? NONE : bytes(seen.own.rss_bytes),
    ]
  })
  return table(columns, rows, terminal)
}

/** Compares each policy with randomly mixed batches; the difference is its gain. */
function policyTable({ policies, policy }: UpView, terminal: Terminal): string {
  const columns = [
    { title: 'policy' },
    ...['seconds', 'batch', 'experts', 'if mixed', 'TPOT ms', 'if mixed', 'gain'].map(right),
  ]
  const rows = policies.map(([name, work]) => {
    const step = meanStep(work)
    const title = name === policy ? terminal.bold(`${name} *`) : name
    if (step === undefined) return [title, whole(work.seconds), ...Array.from({ length: 6 }, () => NONE)]
    const { batch, active, mixedActive, tpotMs, mixedTpotMs, gain } = step
    return [
      title,
      whole(work.seconds),
      fixed(batch, 1),
      fixed(active, 1),
      fixed(mixedActive, 1),
      fixed(tpotMs, 2),
      fixed(mixedTpotMs, 2),
      gainText(gain),
    ]
  })
  const none =
    policies.length === 0
      ? `\n  ${terminal.dim('nothing decoded yet: send a request, or restart with --load')}`
      : ''
  return `${table(columns, rows, terminal)}${none}`
}

/** A gain of 0.09 means 9 % less time. */
function gainText(gain: number): string {
  const text = percent(-gain, 1).replaceAll('\u00a0', ' ')
  return gain < 0 && !text.startsWith('<') ? `+${text}` : text
}

/** One line instead of the table, without a terminal. */
export function upLine(view: UpView, seconds: number): string {
  const { policy = 'no gateway', workers, policies } = view
  const inflight = workers.reduce((sum, { seen }) => sum + (seen.role === 'decode' ? seen.inflight : 0), 0)
  const rate = workers.reduce((sum, { work }) => sum + (work.tokens > 0 ? work.tokens / work.seconds : 0), 0)
  const current = policies.find(([name]) => name === policy)
  const step = current && meanStep(current[1])
  const notReady = workers
    .filter(({ seen }) => seen.state !== 'ready')
    .map(({ seen }) => `${seen.name} ${seen.state}`)
  return [
    `${whole(seconds)} s`,
    policy,
    `in flight ${whole(inflight)}`,
    `${whole(rate)} tokens/s`,
    ...(step
      ? [
          `batch ${fixed(step.batch, 1)}`,
          `experts ${fixed(step.active, 1)} (mixed ${fixed(step.mixedActive, 1)})`,
          `TPOT ${fixed(step.tpotMs, 2)} ms (${gainText(step.gain)})`,
        ]
      : []),
    ...notReady,
  ].join(' · ')
}
