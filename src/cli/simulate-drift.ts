import { fileURLToPath } from 'node:url'
import { EldrError } from '../errors.ts'
import { DECODE_POLICIES, type PolicyDescriptor } from '../policy/decode-policy.ts'
import { UNION } from '../policy/union.ts'
import { driftTables } from '../report/drift-tables.ts'
import { stageProgress } from '../report/progress.ts'
import { terminalOn } from '../report/terminal.ts'
import { BASELINE, BOUND, type DriftFigures, keepsBound } from '../sim/drift/bound.ts'
import { type DriftOptions, largeDomains, type Traffic } from '../sim/drift/drift-runs.ts'
import { runDrift } from '../sim/drift/run-drift.ts'
import { needsDomains, type Scenario, SCENARIOS } from '../sim/drift/scenario.ts'
import { readScenarios } from '../sim/drift/scenario-file.ts'
import { parseTopology } from '../sim/topology.ts'
import { withTrace } from '../trace/trace.ts'
import { usageError } from './options.ts'
import { calibrationPath } from './outputs.ts'
import { DRIFT_DEFAULTS, type SimulateFlags } from './simulate.ts'
import { checkPolicies, firstSet } from './simulate-study.ts'
import { withTemporaryFolder } from './temporary-folder.ts'

/** `eldr simulate --drift` */
export async function driftAction(flags: SimulateFlags): Promise<void> {
  const options = await driftOptions(flags)
  const [out, err] = [terminalOn(process.stdout), terminalOn(process.stderr)]
  const watch = stageProgress(err, flags.quiet === true || !err.live)
  const from = performance.now()
  const figures = await withTemporaryFolder(folder =>
    runDrift(options, folder, (what, done, of) => watch.progress?.(what, done, of)),
  )
  watch.clear?.()
  const seconds = (performance.now() - from) / 1000
  if (flags.json) return out.write(`${JSON.stringify(resultOf(options, figures, seconds), null, 2)}\n`)
  out.write(`\n${driftTables(options, figures, seconds, out)}\n`)
}

/** Output of `--json`: the settings, then every cell with its figures and whether it keeps the bound. */
function resultOf(options: DriftOptions, figures: readonly DriftFigures[], seconds: number): object {
  return {
    ...options,
    baseline: BASELINE,
    bound: BOUND,
    seconds,
    cells: figures.map(one => ({ ...one, keepsBound: keepsBound(one) })),
  }
}

/** Turns the flags into options. Contradictions are errors before any trace is read. */
async function driftOptions(flags: SimulateFlags): Promise<DriftOptions> {
  const { topology, requests, rates = DRIFT_DEFAULTS.rates, seed = 0 } = flags
  const { profile = DRIFT_DEFAULTS.profile, seeds = DRIFT_DEFAULTS.seeds } = flags
  parseTopology(topology)
  if (flags.policies !== undefined) checkPolicies(flags.policies)
  checkAlone(flags)
  const scenarios = await scenariosOf(flags.drift!)
  const files = filesOf(flags)
  const foreign = scenarios.find(({ artifact }) => artifact === 'foreign')
  if (foreign !== undefined && files.some(file => file.foreign === undefined))
    throw usageError(
      `scenario ${foreign.name} without --foreign`,
      'a calibration trace of other traffic',
      'Pass it with --foreign, or name other scenarios.',
    )
  const byDomain = scenarios.find(needsDomains)
  const traffics = await Promise.all(files.map(file => trafficOf(file, byDomain)))
  const policies = flags.policies ?? policiesFor(traffics)
  return {
    scenarios,
    traffics,
    policies: policies.includes(BASELINE) ? policies : [BASELINE, ...policies],
    rates,
    seeds: Array.from({ length: seeds }, (_, at) => seed + at),
    requests,
    profile,
    topology,
  }
}

/** All names, or some of them, or files; a name may be given once. */
async function scenariosOf(words: readonly string[]): Promise<Scenario[]> {
  const lists = await Promise.all(
    words.map(async word => {
      if (word === 'all') return SCENARIOS
      if (word.endsWith('.json')) return readScenarios(word)
      const known = SCENARIOS.find(({ name }) => name === word)
      if (known !== undefined) return [known]
      const names = SCENARIOS.map(({ name }) => name)
      throw usageError(
        `scenario ${JSON.stringify(word)}`,
        `all, some of ${names.join(', ')}, or a .json file`,
        'Choose one of these.',
      )
    }),
  )
  const scenarios = lists.flat()
  const twice = scenarios.find(({ name }, at) => scenarios.findIndex(other => other.name === name) < at)
  if (twice === undefined) return scenarios
  throw usageError(`scenario ${twice.name} twice`, 'each name once', 'Remove or rename one of them.')
}

/** A scenario has its own artifacts, requests and arrivals. */
function checkAlone(flags: SimulateFlags): void {
  const other = firstSet({
    '--artifact': flags.artifact,
    '--placement': flags.placement,
    '--prefill-policy': flags.prefillPolicy,
    '--prefix-cache': flags.prefixCache,
    '--arrivals': flags.arrivals,
    '--rows': flags.rows,
    '--workload': flags.workload,
    '--max-prompt': flags.maxPrompt,
    '--max-output': flags.maxOutput,
    '--prompts': flags.prompts,
    '--recorded-prompts': flags.recordedPrompts,
    '--duration': flags.duration,
    '--warmup-seconds': flags.warmupSeconds,
    '--slo-ttft': flags.sloTtft,
    '--slo-tpot': flags.sloTpot,
    '--gpu-hour': flags.gpuHour,
    '--report': flags.report,
  })
  if (other !== undefined)
    throw usageError(`${other} with --drift`, 'one of them', `Remove ${other}: scenarios do not use it.`)
  const lonely = firstSet({ '--calibration': flags.calibration, '--foreign': flags.foreign })
  if (lonely !== undefined && flags.trace === undefined)
    throw usageError(
      `${lonely} without --trace`,
      'both',
      `Pass the evaluation trace, or remove ${lonely} to use the shipped traces.`,
    )
}

type TrafficFiles = Omit<Traffic, 'domains'>

/** The given traces; without any, the two mixes that are shipped, each foreign to the other. */
function filesOf({ trace, calibration, foreign }: SimulateFlags): TrafficFiles[] {
  if (trace !== undefined)
    return [{ name: 'trace', evaluation: trace, calibration: calibration ?? calibrationPath(trace), foreign }]
  const shipped = (mix: string, split: string) =>
    fileURLToPath(new URL(`../../data/lab16-${mix}.${split}.safetensors`, import.meta.url))
  return [
    ['task', 'lang'],
    ['lang', 'task'],
  ].map(([mix, other]) => ({
    name: mix!,
    evaluation: shipped(mix!, 'evaluation'),
    calibration: shipped(mix!, 'calibration'),
    foreign: shipped(other!, 'calibration'),
  }))
}

async function trafficOf(files: TrafficFiles, byDomain: Scenario | undefined): Promise<Traffic> {
  const traces = await Promise.all(
    [files.evaluation, files.calibration].map(file =>
      withTrace(file, async trace => ({ domains: trace.domains, domainOf: (await trace.domain()) ?? [] })),
    ),
  )
  const domains = largeDomains(traces)
  if (byDomain !== undefined && domains.length < 2)
    throw new EldrError('ELDR_FIT_BAD_OPTION', {
      file: files.evaluation,
      found: `${domains.length} domains with at least 5 % of the requests here and in ${files.calibration}`,
      expected: `at least 2 for scenario ${byDomain.name}`,
      todo: 'Name scenarios that need no domains, or label the requests of both traces.',
    })
  return { ...files, domains }
}

/** Every policy, also union as a gateway runs it; those that need labels only if the traces have them. */
function policiesFor(traffics: readonly Traffic[]): string[] {
  const labelled = traffics.every(({ domains }) => domains.length > 0)
  const canRun = ({ needs }: PolicyDescriptor) => labelled || !needs.includes('labels')
  return [...DECODE_POLICIES.filter(canRun).map(({ name }) => name), `${UNION.name}@learnt`]
}
