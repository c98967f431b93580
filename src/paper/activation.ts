/** Expert activation: Fig. 1 (by domain), Fig. 3 (prefill and decode), Fig. 5 (share of each domain). */
import type { Exhibit, ExhibitChart } from '../report/exhibit.ts'
import { whole } from '../report/numbers.ts'
import { fittedFrom } from './context.ts'
import type { Workload } from './fits.ts'
import { fixed, percent } from './rounded.ts'
import { IN_WORDS } from './traces.ts'
import { listed, number, sum } from './words.ts'

/** Points drawn per scatter plot: more would cover each other. */
const DRAWN_POINTS = 512

export function activationExhibits(workloads: readonly Workload[]): Exhibit[] {
  return [byDomain(workloads), prefillAgainstDecode(workloads), shares(workloads)]
}

function byDomain(workloads: readonly Workload[]): Exhibit {
  const parts = workloads.flatMap(({ workload, figures: { heat } }) =>
    heat === undefined ? [] : [{ workload, heat }],
  )
  /** Each expert's ratio in the domain that activates it most. */
  const preferences = parts.map(({ heat }) =>
    heat.experts.map((_, e) => Math.max(...heat.rows.map(({ values }) => values[e]!))),
  )
  const strong = preferences.map(ratios => ratios.filter(ratio => ratio >= 1.5).length / ratios.length)
  return {
    id: 'fig-1',
    title: 'Fig. 1: experts by domain',
    finding: `Each domain has experts that it prefers: ${listed(parts.map(({ workload, heat }, at) => `${percent(strong[at]!)} (${IN_WORDS[workload]}, layer ${heat.layer})`))} of the experts are activated at least 1.5 times as often in one domain as on average over the domains.`,
    paper: {
      finding:
        'On three models and both workloads each domain over-activates its own subset of experts, visible as blocks along the diagonal.',
      differs:
        'One model of 441 million parameters instead of three with 26 to 120 billion. The paper gives no number for the contrast.',
    },
    source: fittedFrom(workloads),
    tables: [],
    charts: parts.map(({ workload, heat }): ExhibitChart => {
      const above = heat.rows.flatMap(({ values }) => values.filter(value => value > 1)).sort((a, b) => a - b)
      // A few extreme experts must not wash out the colours of all others.
      const to = Math.max(1.2, Math.ceil((above[Math.floor(above.length * 0.98)] ?? 1) * 10) / 10)
      return {
        kind: 'heat',
        title: `Decode activation relative to the mean over domains, ${IN_WORDS[workload]}, layer ${heat.layer}`,
        columnNoun: 'expert',
        columns: heat.experts.map(String),
        rows: heat.rows.map(({ domain, values }) => ({ label: domain, values })),
        from: 1,
        to,
        fromLabel: 'mean or below',
        toLabel: `≥ ${fixed(to, 1)} ×`,
      }
    }),
  }
}

function prefillAgainstDecode(workloads: readonly Workload[]): Exhibit {
  const parts = workloads.flatMap(({ workload, figures: { activation } }) =>
    activation === undefined ? [] : [{ workload, activation }],
  )
  return {
    id: 'fig-3',
    title: 'Fig. 3: prefill predicts decode',
    finding: `An expert’s share of the choices during prefill and its share during decode have a correlation of ${listed(
      parts.map(({ workload, activation }) => `${fixed(activation.correlation, 2)} (${IN_WORDS[workload]})`),
    )}.`,
    paper: {
      finding:
        'Correlations from 0.70 to 0.92: strong for Qwen3-30B-A3B and Gemma-4-26B-A4B, weaker for GPT-OSS-120B.',
      differs:
        'lab16 continues its prompt as a base model does, so prompt and output are more alike than with chat models.',
    },
    source: fittedFrom(workloads),
    tables: [],
    charts: parts.map(({ workload, activation: { points } }): ExhibitChart => {
      const every = Math.max(1, Math.ceil(points.length / DRAWN_POINTS))
      const thin = every > 1 ? `, 1 in ${whole(every)} drawn` : ''
      return {
        kind: 'points',
        title: `Experts of all layers, ${IN_WORDS[workload]}${thin}`,
        x: 'share of prefill choices (1 = average expert)',
        y: 'share of decode choices',
        diagonal: true,
        groups: [
          {
            label: 'expert',
            points: points.filter((_, at) => at % every === 0).map(({ x, y }) => [x, y] as const),
          },
        ],
      }
    }),
  }
}

function shares(workloads: readonly Workload[]): Exhibit {
  const parts = workloads.map(({ workload, summary }) => {
    const counts = summary.source.domains.map((domain, d) => ({
      domain,
      requests: sum(summary.clusters.map(({ domains }) => domains[d] ?? 0)),
    }))
    const total = sum(counts.map(({ requests }) => requests))
    const sorted = counts.toSorted((a, b) => b.requests - a.requests || (a.domain < b.domain ? -1 : 1))
    return {
      workload,
      shares: sorted.map(({ domain, requests }) => ({ domain, requests, share: requests / total })),
    }
  })
  const [task, lang] = parts
  const topTwo = sum(lang!.shares.slice(0, 2).map(({ share }) => share))
  const ratio = task!.shares[0]!.requests / task!.shares.at(-1)!.requests
  return {
    id: 'fig-5',
    title: 'Fig. 5: share of each domain',
    finding: `In the language mix ${listed(lang!.shares.slice(0, 2).map(({ domain }) => domain))} make up ${percent(topTwo)} of the requests; in the task mix the largest domain has ${fixed(ratio, 2)} times the requests of the smallest.`,
    paper: {
      finding:
        'English and Chinese are about 75 % of WildChat, the four largest languages 87.6 %; in the task mix the ratio is 1.41.',
      differs: 'The mixes were sampled to have the paper’s proportions.',
    },
    source: fittedFrom(workloads),
    tables: [],
    charts: parts.map(({ workload, shares: of }): ExhibitChart => ({
      kind: 'bars',
      title: `Requests by domain, ${IN_WORDS[workload]}`,
      x: 'share of requests (%)',
      groups: [{ bars: of.map(({ domain, share }) => ({ label: domain, ...number(100 * share, 1, '%') })) }],
    })),
  }
}
