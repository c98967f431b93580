/** docs/evidence/drift.md, from saved results. Its findings are computed, so they hold after every rerun. */
import { LOAD_BALANCERS } from '../sim/compare.ts'
import { BASELINE, type DriftFigures, verdictOf, worstOf } from '../sim/drift/bound.ts'
import { type DriftResults, unpackDrift } from './drift-results.ts'
import { boundInWords, changesText, policyRows, worstText } from './drift-words.ts'
import { markdownTable } from './markdown-table.ts'
import { fixed, many, whole } from './numbers.ts'
import { rateText } from './simulation-measures.ts'
import { type StepCostFigures, stepCostSection } from './step-cost-section.ts'

/** `small`: a slow worker in small clusters. */
export function driftPage(
  results: DriftResults,
  small: readonly DriftResults[],
  stepCost: StepCostFigures,
): string {
  const figures = unpackDrift(results)
  const { scenarios, policies } = results
  const others = policies.filter(policy => policy !== BASELINE)
  const of = (scenario: string, policy: string) =>
    figures.filter(one => one.scenario === scenario && one.policy === policy)
  return `${[
    '# Drift: what policies cost on traffic that has moved',
    `Simulated. An artifact describes the traffic it was fitted on. Each scenario below changes the traffic, the artifact or the cluster, and compares every policy with \`${BASELINE}\`, which looks at neither experts nor clusters. ${boundInWords()} \`union\` knows the cost of a step from the profile, the same for all workers; \`union@learnt\` is what a gateway runs by default: it begins with another cost and [learns](#learnt-cost-of-a-step) those of each worker.`,
    findings(
      results.topology,
      figures,
      others.filter(policy => !LOAD_BALANCERS.includes(policy)),
    ),
    '## Run it',
    '<!-- not run: all scenarios take minutes; test/cli-drift.test.ts runs a small one -->\n```sh\nnpx eldr simulate --drift all\nnpx eldr simulate --drift swapped,burst --policies eldr,union --rates 400 --seeds 3\nnpx eldr simulate --drift mine.json --trace my.evaluation.safetensors --foreign other.calibration.safetensors\n```',
    `\`npm run build && node scripts/drift.mjs\` makes this page again, with [drift.json](results/drift.json). With \`--trace\`, your own traces replace the shipped ones; artifacts are fitted on \`--calibration\`. \`mine.json\` is a list of scenarios with the fields of the built-in ones (\`src/sim/drift/scenario.ts\`):`,
    '```json\n[{ "name": "weekend", "about": "foreign burst, slow worker", "artifact": "foreign", "burstSeconds": 30, "slowness": 1.3 }]\n```',
    '## Conditions',
    ...conditions(results, figures),
    '## The worst change of each policy',
    `Largest change of TPOT p50 / p99 in % over both mixes and all rates, means over ${many(results.seeds, 'seed')}. **!** misses the bound.`,
    markdownTable(
      ['scenario', 'what differs', ...others],
      2,
      scenarios.map(({ name, about }) => [
        `[${name}](#${name})`,
        about,
        ...others.map(policy => worstText(of(name, policy)).replace('!', '**!**')),
      ]),
    ),
    ...scenarios.flatMap(({ name, about }) => [
      `## ${name}`,
      `${about[0]!.toUpperCase()}${about.slice(1)}. Change of TPOT p50 / p99 against \`${BASELINE}\`, paired by seed, ± 95 %; for \`${BASELINE}\` the times.`,
      scenarioTable(
        results,
        figures.filter(one => one.scenario === name),
      ),
    ]),
    ...smallSection(results, small),
    ...stepCostSection(stepCost),
  ].join('\n\n')}\n`
}

/** Which policies that route by experts keep the bound everywhere, and the worst cell of the others. */
function findings(topology: string, figures: readonly DriftFigures[], policies: readonly string[]): string {
  const of = (policy: string) => figures.filter(one => one.policy === policy)
  const met = policies.filter(policy => verdictOf(of(policy)) === 'met')
  const missed = policies.filter(policy => !met.includes(policy))
  const scenarios = new Set(figures.map(({ scenario }) => scenario)).size
  const kept =
    met.length === 0
      ? `No policy keeps the bound in all ${scenarios} scenarios.`
      : `**Target met in all ${scenarios} scenarios on ${topology}: ${met.map(policy => `\`${policy}\``).join(', ')}.**`
  const worst = missed.map(policy => {
    const own = of(policy)
    const cells = own.filter(one => verdictOf([one]) === 'missed')
    const { p50Change, p99Change } = worstOf(cells)!
    const names = [...new Set(cells.map(({ scenario }) => scenario))]
    return `- \`${policy}\`: ${many(cells.length, 'cell')} of ${own.length} (${names.join(', ')}), up to ${signed(p50Change.mean)} p50 and ${signed(p99Change.mean)} p99`
  })
  return missed.length === 0
    ? kept
    : `${kept} [Small clusters](#small-clusters) with a slow worker are below. Target missed:\n\n${worst.join('\n')}\n\nThe other load balancers are in the tables for comparison.`
}

const signed = (share: number) => `${share > 0 ? '+' : ''}${fixed(100 * share, 1)} %`

function conditions(
  { topology, profile, rates, requests, seeds, traffics, scenarios }: DriftResults,
  figures: readonly DriftFigures[],
): string[] {
  const batches = figures.filter(one => one.policy === BASELINE).map(({ batch }) => batch)
  const preempted = [...new Set(figures.filter(one => one.preemptions > 0).map(({ policy }) => policy))]
  const domains = traffics.map(({ name, domains: large }) => `${name}: ${large.join(', ')}`).join('; ')
  const timed = scenarios.filter(one => one.burstSeconds !== undefined || one.daySeconds !== undefined)
  return [
    [
      `- **Cluster**: ${topology}, profile \`${profile}\`; ${rates.map(rateText).join(', ')} requests per second, Poisson; batches of ${fixed(Math.min(...batches), 0)} to ${fixed(Math.max(...batches), 0)} under \`${BASELINE}\`.`,
      `- **Traffic**: the shipped lab16 evaluation traces (${traffics.map(({ name }) => name).join(', ')}); artifacts are fitted on the calibration traces with the defaults of \`eldr fit\`. Each trace has 400 requests, so at high rates copies of a request run at the same time, most of all in a burst.`,
      `- **Runs**: ${many(seeds, 'seed')}, the same arrivals for all policies. ${whole(requests)} requests, the first 15 % and the last 10 % not measured; ${timed.map(({ name }) => name).join(' and ')}: 10 s of warm-up, then the whole day, or the burst and 15 s after it, are measured.`,
      `- **Seeds** also choose the domain that bursts or is left out of the fit (${domains}), one of three permutations (shuffled, noise) and the slow worker. Intervals contain these differences.`,
      '- **Clusters**: a gateway refits an artifact of another number of workers; scaled_out and scaled_in show the time before that, with workers without a centroid or centroids without a worker.',
      `- **Preemptions**: ${preempted.length === 0 ? 'none in any run; `src/sim/kv-load.test.ts` compares policies with little KV cache' : `some under ${preempted.join(', ')}`}.`,
    ].join('\n'),
  ]
}

/** What the limit on passing load on costs and gives where there are few workers to take it. */
function smallSection({ topology: large }: DriftResults, small: readonly DriftResults[]): string[] {
  const [{ seeds, requests, policies, scenarios }] = small as [DriftResults]
  const about = scenarios.map(one => `*${one.name}*: ${one.about}`).join('; ')
  const others = policies.filter(policy => policy !== BASELINE)
  const verdicts = others.map(policy => {
    const own = small.flatMap(results => unpackDrift(results).filter(one => one.policy === policy))
    const missed = own.filter(one => verdictOf([one]) === 'missed')
    const worst = worstOf(missed)
    return worst === undefined
      ? `\`${policy}\` meets the bound in all ${many(own.length, 'cell')}`
      : `\`${policy}\` misses it in ${missed.length} of ${many(own.length, 'cell')}, up to ${signed(worst.p50Change.mean)} p50 and ${signed(worst.p99Change.mean)} p99`
  })
  return [
    '## Small clusters',
    `The load that a slow worker does not get goes to the others, and in a small cluster each of them takes much of it. \`union\` therefore prices a slow worker as a normal one while the others have 6 % more than the mean load, and always if half of the workers are slow. On ${large} that is hardly ever reached; here it keeps the median, and the tail gains less: without it, 2P4D with lang, foreign_slow and batch 12 had +2.8 ± 0.7 % p50 and −27.5 ± 1.1 % p99 (4 seeds, calibration traces). ${many(seeds, 'seed')}, ${whole(requests)} requests, otherwise as above. ${about[0]!.toUpperCase()}${about.slice(1)}. ${verdicts.join('; ')}.`,
    ...small.flatMap(results => {
      const figures = unpackDrift(results)
      const batches = figures.filter(one => one.policy === BASELINE).map(({ batch }) => batch)
      return [
        `${results.topology}, batches of ${fixed(Math.min(...batches), 0)} to ${fixed(Math.max(...batches), 0)} under \`${BASELINE}\`:`,
        markdownTable(
          [
            'scenario',
            'traffic',
            'policy',
            'bound',
            ...results.rates.map(rate => `${rateText(rate)} per second`),
          ],
          4,
          results.scenarios.flatMap(({ name }) =>
            policyRows(figures.filter(one => one.scenario === name)).map(own => [
              name,
              own[0]!.traffic,
              own[0]!.policy,
              (verdictOf(own) ?? '').replace('missed', '**missed**'),
              ...own.map(changesText),
            ]),
          ),
        ),
      ]
    }),
    '<!-- not run: it takes minutes -->\n```sh\nnpm run build && node scripts/drift.mjs --small\n```',
  ]
}

function scenarioTable({ rates }: DriftResults, figures: readonly DriftFigures[]): string {
  return markdownTable(
    ['traffic', 'policy', 'bound', ...rates.map(rate => `${rateText(rate)} per second`)],
    3,
    policyRows(figures).map(own => [
      own[0]!.traffic,
      own[0]!.policy,
      verdictOf(own) ?? '',
      ...own.map(changesText),
    ]),
  )
}
