// Does routing by experts still do what it is there for.
import { graph, of, quantiles, rate, stat, states, sum } from './panel.mjs'

const rejects = of('eldr_signature_rejects_total', 'reason!="recent_missing"')
const usable = of('eldr_signature_coverage_count')

export const routing = {
  title: 'Routing',
  panels: [
    stat(
      'Policies in force',
      'none',
      'Decode policy and prefill policy.',
      [
        {
          expr: sum('policy, prefill_policy', of('eldr_policy_info')),
          legend: '{{policy}} / {{prefill_policy}}',
        },
      ],
      { decimals: 0 },
    ),
    stat('Artifact', 'none', 'Gateways that have an artifact, by its model and hash.', [
      { expr: sum('model, sha256', of('eldr_artifact_info')), legend: '{{model}} {{sha256}}' },
    ]),
    stat(
      'Without signature',
      'percentunit',
      'Hand-offs whose counts are missing or cannot be used: those requests are routed by load.',
      `sum(${rate(rejects)}) / (sum(${rate(rejects)}) + sum(${rate(usable)}))`,
      {
        thresholds: [
          [0.05, 'orange'],
          [0.25, 'red'],
        ],
        decimals: 1,
      },
    ),
    stat(
      'Band hits',
      'percentunit',
      'Of the decisions of eldr with a signature, those where the best worker was free enough to be taken.',
      `sum(${rate(of('eldr_decisions_total', 'reason="band_hit"'))}) / sum(${rate(of('eldr_decisions_total', 'reason=~"band_hit|band_spill"'))})`,
      { decimals: 1 },
    ),
    stat(
      'Drift',
      'none',
      'Median cosine of live requests to their nearest centroid, less that of the calibration. Well below 0: fit again.',
      `min(${of('eldr_fit_similarity', 'of="live", q="0.5"')} - ignoring(of) ${of('eldr_fit_similarity', 'of="calibration", q="0.5"')})`,
      { decimals: 3, signed: true },
    ),
    stat(
      'Clusters misfit',
      'none',
      'Gateways whose artifact has not as many clusters as there are decode workers.',
      `sum(${of('eldr_clusters_misfit')})`,
      { thresholds: [[1, 'orange']] },
    ),
    graph(
      'Decisions by policy and reason',
      'ops',
      'Decode decisions. no_signature and no_counts went by load.',
      [{ expr: sum('policy, reason', rate(of('eldr_decisions_total'))), legend: '{{policy}} {{reason}}' }],
      { stacked: true },
    ),
    graph(
      'Similarity to the worker’s centroid',
      'none',
      'Cosine of requests to the centroid of the worker that they went to.',
      quantiles('eldr_similarity'),
      { max: 1 },
    ),
    graph(
      'Best similarity, live and calibration',
      'none',
      'Cosine to the nearest centroid, by quantile, of the last 15 minutes, beside the requests that the artifact was fitted from.',
      [
        {
          expr: `avg by (of, q) (${of('eldr_fit_similarity', 'q=~"0.05|0.5|0.95"')})`,
          legend: '{{of}} {{q}}',
        },
      ],
      { max: 1 },
    ),
    graph(
      'Band size',
      'none',
      'Workers in the locality band: the wider, the more load decides.',
      quantiles('eldr_band_size'),
    ),
    graph(
      'Coverage',
      'percentunit',
      'Mean share of a prompt whose experts are known, of hand-offs with counts.',
      [
        {
          expr: `sum(${rate(of('eldr_signature_coverage_sum'))}) / sum(${rate(of('eldr_signature_coverage_count'))})`,
          legend: 'mean',
        },
      ],
      { max: 1 },
    ),
    graph('Rejected counts by reason', 'ops', 'Hand-offs whose counts were not used.', [
      { expr: sum('reason', rate(of('eldr_signature_rejects_total'))), legend: '{{reason}}' },
    ]),
    graph(
      'Time to decide',
      's',
      'To read the counts of a hand-off and pick a worker.',
      quantiles('eldr_route_seconds'),
    ),
    graph(
      'Time of the hand-off',
      's',
      'From prefill’s answer to the dispatch of decode.',
      quantiles('eldr_handoff_seconds'),
    ),
    graph(
      'Changes of routing',
      'none',
      'Policies, artifacts and re-fits that were put in force, and re-fits that were refused, in five minutes.',
      [{ expr: sum('cause', `increase(${of('eldr_routing_changes_total')}[5m])`), legend: '{{cause}}' }],
    ),
    states('Clusters', 'none', 'Clusters that each gateway decides by; 0 without an artifact.', [
      { expr: of('eldr_artifact_clusters'), legend: '{{instance}}' },
    ]),
  ],
}
