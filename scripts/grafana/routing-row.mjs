// Effect and health of expert-aware routing.
import { graph, of, quantiles, rate, stat, states, sum } from './panel.mjs'

const rejects = of('eldr_signature_rejects_total', 'reason!="recent_missing"')
const usable = of('eldr_signature_coverage_count')

export const routing = {
  title: 'Routing',
  panels: [
    stat(
      'Policies',
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
    stat('Artifact', 'none', 'Gateways with an artifact, by model and hash.', [
      { expr: sum('model, sha256', of('eldr_artifact_info')), legend: '{{model}} {{sha256}}' },
    ]),
    stat(
      'Without signature',
      'percentunit',
      'Share of hand-offs without usable counts; those requests are routed by load.',
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
      'Match hits',
      'percentunit',
      'Share of eldr and band decisions with a signature that chose the best-matching worker. Empty under union.',
      `sum(${rate(of('eldr_decisions_total', 'reason=~"band_hit|match_hit"'))}) / sum(${rate(of('eldr_decisions_total', 'reason=~"band_hit|band_spill|match_hit|match_spill"'))})`,
      { decimals: 1 },
    ),
    stat(
      'Drift',
      'none',
      'Median cosine of live requests to their nearest centroid minus that of the calibration. Well below 0: calibrate again.',
      `min(${of('eldr_fit_similarity', 'of="live", q="0.5"')} - ignoring(of) ${of('eldr_fit_similarity', 'of="calibration", q="0.5"')})`,
      { decimals: 3, signed: true },
    ),
    stat(
      'Cluster mismatch',
      'none',
      'Gateways whose artifact has more or fewer clusters than there are decode workers.',
      `sum(${of('eldr_clusters_misfit')})`,
      { thresholds: [[1, 'orange']] },
    ),
    graph(
      'Decisions by policy and reason',
      'ops',
      'Decode decisions. no_signature and no_counts were routed by load.',
      [{ expr: sum('policy, reason', rate(of('eldr_decisions_total'))), legend: '{{policy}} {{reason}}' }],
      { stacked: true },
    ),
    graph(
      'Similarity to the worker’s centroid',
      'none',
      'Cosine of requests to the centroid of their worker.',
      quantiles('eldr_similarity'),
      { max: 1 },
    ),
    graph(
      'Best similarity, live and calibration',
      'none',
      'Quantiles of the cosine to the nearest centroid: live requests of the last 15 minutes and calibration requests.',
      [
        {
          expr: `avg by (of, q) (${of('eldr_fit_similarity', 'q=~"0.05|0.5|0.95"')})`,
          legend: '{{of}} {{q}}',
        },
      ],
      { max: 1 },
    ),
    graph(
      'Drift',
      'none',
      'Mean rank of live requests among the calibration requests (about 0.5 while the artifact fits), and gateways that see drift.',
      [
        { expr: of('eldr_adapt_rank'), legend: 'rank {{instance}}' },
        { expr: of('eldr_adapt_drifting'), legend: 'drifting {{instance}}' },
      ],
      { max: 1 },
    ),
    graph(
      'Live recalibration',
      'none',
      'Drift, judged refits, swaps and what became of them, per five minutes.',
      [{ expr: sum('event', `increase(${of('eldr_adapt_events_total')}[5m])`), legend: '{{event}}' }],
    ),
    graph('Live sample', 'none', 'Requests in the sample that a refit uses.', [
      { expr: of('eldr_adapt_sample_requests'), legend: '{{instance}}' },
    ]),
    graph(
      'Band size',
      'none',
      'Workers in the locality band, policy band only. The wider, the more load decides.',
      quantiles('eldr_band_size'),
    ),
    graph(
      'Coverage',
      'percentunit',
      'Mean share of the prompt covered by counts, for hand-offs with counts.',
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
      'Decision time',
      's',
      'Reading the counts of a hand-off and choosing a worker.',
      quantiles('eldr_route_seconds'),
    ),
    graph(
      'Hand-off time',
      's',
      'From the prefill response to the decode dispatch.',
      quantiles('eldr_handoff_seconds'),
    ),
    graph(
      'Routing changes',
      'none',
      'Applied policies, artifacts and refits, and refused refits, per five minutes.',
      [{ expr: sum('cause', `increase(${of('eldr_routing_changes_total')}[5m])`), legend: '{{cause}}' }],
    ),
    states('Clusters', 'none', 'Clusters in use per gateway; 0 without an artifact.', [
      { expr: of('eldr_artifact_clusters'), legend: '{{instance}}' },
    ]),
  ],
}
