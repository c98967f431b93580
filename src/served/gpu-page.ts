/**
 * docs/evidence/gpu.md and its figure, from the committed results of `bench/gpu/serving`. A section without a
 * result is left out, so that the page never says more than was measured.
 */
import { fixed, many } from '../report/numbers.ts'
import { captureCostSection, captureExactSection } from './capture-section.ts'
import { captureProfileSection, variantSection } from './capture-profile-section.ts'
import { featureSection } from './feature-section.ts'
import { LOAD_BALANCERS } from '../sim/compare.ts'
import { changeOf, policiesOf } from './paired.ts'
import { change, loadInWords, policySection, type ServedExperiment } from './policy-section.ts'
import { predictionSection, type SimulationEvidence } from './prediction-section.ts'
import { type ProfiledShape, profileSection } from './profile-section.ts'
import { completeRuns, type Conditions, type ResultOf, type ServedResult } from './result-file.ts'
import { stepSection } from './step-section.ts'

export interface GpuEvidence extends Pick<SimulationEvidence, 'predictions' | 'predictedWith'> {
  readonly results: readonly ServedResult[]
  /** Profiles fitted to the `profile` results. */
  readonly shapes: readonly ProfiledShape[]
}

export function gpuPage({ results, predictions, predictedWith, shapes }: GpuEvidence): string {
  const of = <Kind extends ServedResult['kind']>(kind: Kind) =>
    results.filter((result): result is ResultOf<Kind> => result.kind === kind)
  const served = of('served').toSorted(
    (a, b) => b.served.decoders - a.served.decoders || a.served.rate - b.served.rate,
  )
  const present = shapes.find(one => one.served.name === predictedWith?.name)?.served
  const blocks = [
    '# On a GPU: vLLM, the plugin, NIXL and the gateway',
    ...intro(results, served),
    ...conditionsSection(results),
    ...modelSection(results),
    ...policySection(served),
    ...predictionSection(served, { predictions, predictedWith, present }),
    ...stepSection(results, present),
    ...profileSection(shapes),
    ...captureCostSection(of('capture-cost')),
    ...captureProfileSection(of('capture-profile'), of('capture-cost')),
    ...variantSection(of('capture-profile')),
    ...captureExactSection(of('capture-exact')),
    ...featureSection(of('features'), of('profile')),
    '## Repeat it',
    'One Hopper GPU, Linux and Python: `bench/gpu/serving` is the program, and its README has the commands. `npm run build && npm run docs` writes this page and its figure from `bench/gpu/serving/results`.',
    ...notRun(results),
  ]
  return `${blocks.join('\n\n')}\n`
}

/** Steps of the program that no section needs, unless they were run. */
const SPARE = {
  'profile-wide-k2': '`profile --engines 2`',
  'profile-wide-k4': '`profile --engines 4`',
  'capture-more': '`capture --set more`',
}

function notRun(results: readonly ServedResult[]): string[] {
  const missing = Object.entries(SPARE).filter(([name]) => !results.some(result => result.name === name))
  if (results.length === 0 || missing.length === 0) return []
  return [
    `Steps of the program that were not run: ${missing.map(([, words]) => words).join(', ')}. The runs of the policies and the other captures cover what they would measure.`,
  ]
}

function intro(results: readonly ServedResult[], served: readonly ServedExperiment[]): string[] {
  if (results.length === 0)
    return [
      'No result with its full conditions is in the repository yet. The program that makes them is there.',
    ]
  const scope =
    'Everything here was served by real vLLM engines on a GPU (*GPU-served*). Figures that were simulated say so.'
  const [first] = served
  if (first === undefined) return [scope]
  const runs = completeRuns(first)
  const gains = policiesOf(runs)
    .filter(policy => !LOAD_BALANCERS.includes(policy))
    .map(
      policy =>
        `${policy} ${change(changeOf(runs, policy, run => run.tpotMs.p50))} at the median and ${change(changeOf(runs, policy, run => run.tpotMs.p99))} at p99`,
    )
  return [
    scope,
    `TPOT against jsq, ${loadInWords(first)} (\`${first.name}\`): **${gains.join('; ')}**. \`band\` is the paper’s rule, \`eldr\` the same with a bound on harm, \`union\` our own.`,
  ]
}

/**
 * Results of one run of the program share their conditions but for the commit; each different set is listed
 * once.
 */
function conditionsSection(results: readonly ServedResult[]): string[] {
  const sets = new Map<string, ServedResult[]>()
  for (const result of results) {
    const { date, commit: _, modified: __, changed: ___, ...rest } = result.conditions
    const key = JSON.stringify([date.slice(0, 10), rest])
    sets.set(key, [...(sets.get(key) ?? []), result])
  }
  if (sets.size === 0) return []
  const only = sets.size === 1
  return [
    '## Conditions',
    ...[...sets.values()].map(set =>
      [
        ...(only ? [] : [`${names(set)}:\n`]),
        ...conditionItems(set[0]!.conditions).map(([term, value]) => `- **${term}**: ${value}`),
        `- **ELDR**: ${commits(set)}`,
      ].join('\n'),
    ),
    ...conditionNotes(results),
  ]
}

function conditionNotes(results: readonly ServedResult[]): string[] {
  const all = results.map(({ conditions }) => conditions)
  const copies = [...new Set(all.flatMap(({ copyBandwidthGBs }) => copyBandwidthGBs ?? []))]
  return [
    ...(all.some(({ modified, changed }) => modified === true && changed === undefined)
      ? [
          '*With local changes*: the check covered all of `bench`, `python` and `src`. The machine gets a copy of the repository without earlier results and some other folders, and files that are missing there count as changes. Which files differed was not recorded; the program now checks only code and names the files.',
        ]
      : []),
    ...(copies.length < 2
      ? []
      : [
          `The copy was timed once on each visit to the machine, and ${copies.map(copy => `${fixed(copy, 0)} GB/s`).join(' and ')} differ more than the memory does: engines of the visit with the lower figure read weights faster than that. Take it as a lower bound. No other figure here uses it; the program now takes the best of five.`,
        ]),
  ]
}

const names = (results: readonly ServedResult[]): string =>
  results.map(({ name }) => `\`${name}\``).join(', ')

function commits(results: readonly ServedResult[]): string {
  const sets = new Map<string, ServedResult[]>()
  for (const result of results) {
    const { commit, modified, changed } = result.conditions
    const files = changed === undefined ? '' : ` (${changed.map(file => `\`${file}\``).join(', ')})`
    const words = `commit ${commit.slice(0, 12)}${modified === true ? ` with local changes${files}` : ''}`
    sets.set(words, [...(sets.get(words) ?? []), result])
  }
  if (sets.size === 1) return [...sets.keys()][0]!
  return [...sets].map(([words, set]) => `${words} (${names(set)})`).join('; ')
}

function conditionItems(conditions: Conditions): (readonly [string, string])[] {
  const { date, gpu, host, versions, mps, copyBandwidthGBs, copyCounts } = conditions
  const memory = gpu.memoryGib === undefined ? '' : `, ${fixed(gpu.memoryGib, 0)} GiB`
  const counted = copyCounts === 'read+write' ? ', bytes read and bytes written counted' : ''
  const copy =
    copyBandwidthGBs === undefined
      ? ''
      : `; a copy within its memory: ${fixed(copyBandwidthGBs, 0)} GB/s${counted}`
  const software = Object.entries(versions).map(([name, version]) => `${name} ${String(version)}`)
  return [
    ['date', date.slice(0, 10)],
    ['GPU', `one ${gpu.name}${memory}, driver ${gpu.driver}${copy}`],
    ['host', `${host.cpu === undefined ? '' : `${host.cpu}, `}${many(host.cores, 'core')}`],
    ['software', software.join(', ')],
    ['engines on one GPU', mps ? 'under CUDA MPS' : 'without CUDA MPS: they take turns by time slice'],
  ]
}

function modelSection(results: readonly ServedResult[]): string[] {
  const model = results.find(result => result.model.weights === 'widened')?.model
  if (model === undefined) return []
  const { layers, experts, topK, hidden, expertWidth, bytesPerExpert } = model
  const size = bytesPerExpert === undefined ? '' : `, ${fixed(bytesPerExpert / 1e6, 1)} MB per expert`
  return [
    '## The widened model',
    `Random weights have no locality, and the machine had no network to download a model. So tiny6, the small model that ships with ELDR, is widened without changing its function: hidden size ${fixed(hidden, 0)} and expert width ${fixed(expertWidth, 0)}${size}, ${layers} layers of ${experts} experts, top ${topK}. The added weights are zeros, and norms are scaled so that logits stay the same. Its gates choose experts as they were trained to.`,
    [
      '- **It is**: a real engine, real kernels and a scheduler under load, the routing of a trained model, and per layer the weight traffic of a large one.',
      '- **It is not**: a large model. It has few layers, so the host takes a larger share of a step. It was trained on little text, so its experts are not those of a model that people use. Attention and the dense parts are small.',
      '- **Several engines share one GPU**: each slows the others, so a time per token is nearly the sum of their steps. On GPUs of their own they would be faster and the host’s share larger.',
    ].join('\n'),
  ]
}
