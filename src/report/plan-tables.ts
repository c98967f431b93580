/** A plan as terminal tables: highest rates, fewest workers, conditions and the verdict. */
import { RATE_TOLERANCE } from '../sim/plan-search.ts'
import type { Plan, PolicyPlan } from '../sim/plan.ts'
import { fixed, many, percent, whole } from './numbers.ts'
import {
  checkCells,
  money,
  rateLimitText,
  signedPercent,
  sloText,
  spanInWords,
  threeDigits,
  verdictInWords,
  workerLimitText,
} from './plan-words.ts'
import { type Column, table } from './table.ts'
import { printable, type Terminal, wrapped } from './terminal.ts'

const NONE = '–'
const right = (title: string): Column => ({ title, align: 'right' })

export function planTables(plan: Plan, seconds: number, terminal: Terminal): string {
  const span = spanInWords(plan)
  const paragraph = (text: string) => wrapped(text, terminal.width)
  return [
    paragraph(terminal.dim(sourceOf(plan))),
    rateTable(plan, terminal),
    ...(plan.rate === undefined ? [] : [decoderTable(plan, terminal)]),
    checkTable(plan, terminal),
    `${terminal.bold('Verdict')}\n${paragraph(verdictInWords(plan))}`,
    paragraph(terminal.dim(priceText(plan))),
    paragraph(span.isShort ? `${terminal.warn('warning:')} ${span.text}` : terminal.dim(span.text)),
    terminal.dim(`planned in ${fixed(seconds, 1)} s`),
  ].join('\n\n')
}

function sourceOf({ study, seeds, artifactWorkers, results }: Plan): string {
  const { trace, artifact, profile, topology, requests } = study
  const decoders = results[0]!.highest.probe.decoders
  const fitted =
    artifact === undefined
      ? ''
      : `, artifact ${printable(artifact)}${artifactWorkers === decoders ? '' : ` refitted from ${artifactWorkers} to ${many(decoders, 'worker')}`}`
  return `Simulated: ${topology}, profile ${printable(profile)}, trace ${printable(trace)}${fitted}; ${study.arrivals} arrivals, ${many(seeds, 'seed')}, at least ${whole(requests)} requests per run.`
}

function rateTable(plan: Plan, terminal: Terminal): string {
  const prefill = plan.results[0]!.highest.probe.ttftP99Ms !== null
  const columns = [
    { title: 'policy' },
    right('requests/s'),
    right('gain'),
    right('p99 TPOT'),
    ...(prefill ? [right('p99 TTFT')] : []),
    right('batch'),
    right('active experts'),
    right('$/M tokens'),
    { title: 'limit above it' },
  ]
  const rows = plan.results.map(({ variant, highest }) => {
    const { probe, value, gain } = highest
    const ms = (interval: { mean: number; half: number }, digits: number) =>
      `${fixed(interval.mean, digits)}${Number.isFinite(interval.half) ? ` ± ${fixed(interval.half, digits)}` : ''} ms`
    return [
      variant,
      value === null ? 'none' : threeDigits(value),
      variant === plan.balancer ? '·' : gain === null ? NONE : signedPercent(gain),
      ms(probe.tpotP99Ms, 2),
      ...(prefill ? [ms(probe.ttftP99Ms!, 1)] : []),
      fixed(probe.batch, 1),
      fixed(probe.activeExperts, 1),
      highest.costPerMillionTokens === null ? NONE : money(highest.costPerMillionTokens, 3),
      rateLimitText(highest),
    ]
  })
  const remark = `(${sloText(plan)}; to within ${percent(RATE_TOLERANCE)} for these seeds; ± of p99 covers other seeds; gain against the best load balancer, marked ·)`
  return `${wrapped(`${terminal.bold(`Highest rate of ${plan.study.topology} within the SLO`)} ${terminal.dim(remark)}`, terminal.width)}\n${table(columns, rows, terminal)}`
}

function decoderTable(plan: Plan, terminal: Terminal): string {
  const columns = [
    { title: 'policy' },
    ...['decode workers', 'GPUs', 'GPUs saved', '$/hour', '$ saved/year'].map(right),
    { title: 'limit with one fewer' },
  ]
  const row = ({ variant, isBalancer, fewest }: PolicyPlan) => {
    const { value, gpus, gpusSaved, costPerHour, savedPerYear } = fewest!
    const saved = (text: string | undefined) => (isBalancer ? '·' : (text ?? NONE))
    return [
      variant,
      value === null ? 'none' : `${value}`,
      gpus === null ? NONE : whole(gpus),
      saved(gpusSaved === null ? undefined : whole(gpusSaved)),
      costPerHour === null ? NONE : money(costPerHour),
      saved(savedPerYear === null ? undefined : money(savedPerYear, 0)),
      workerLimitText(fewest!, plan),
    ]
  }
  const heading = `Fewest decode workers for ${threeDigits(plan.rate!)} requests per second`
  const refitted = plan.study.artifact === undefined ? '' : 'artifact refitted for each number; '
  const remark = `(${refitted}savings against the load balancer with the fewest)`
  return `${wrapped(`${terminal.bold(heading)} ${terminal.dim(remark)}`, terminal.width)}\n${table(columns, plan.results.map(row), terminal)}`
}

function checkTable(plan: Plan, terminal: Terminal): string {
  const columns = [{ title: 'condition' }, right('found'), { title: 'required' }, { title: '' }]
  const rows = plan.verdict.checks.map(check => {
    const { what, found, required } = checkCells(check, plan)
    return [what, found, required, check.against ? terminal.warn('✗') : '✓']
  })
  const remark = `(with ${plan.balancer} at ${threeDigits(plan.sameRate.rate)} requests per second)`
  return `${wrapped(`${terminal.bold('Conditions for routing by experts')} ${terminal.dim(remark)}`, terminal.width)}\n${table(columns, rows, terminal)}`
}

function priceText({ pricePerGpuHour, isPriceGiven, gpus, study }: Plan): string {
  const where =
    isPriceGiven === true ? 'set by --gpu-hour' : 'an example, not a quote (set yours with --gpu-hour)'
  return `Cost is GPUs × ${money(pricePerGpuHour)} per hour, ${where}. ${study.topology} has ${many(gpus, 'GPU')}; tokens are those generated by decode; a year has 365 days.`
}
