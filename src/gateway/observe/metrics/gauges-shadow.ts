/** Counts of the shadow policies. Absent without any. */
import type { ShadowCounts } from '../shadow-counts.ts'
import type { Metrics } from './metrics.ts'

export interface ShadowSources {
  readonly shadow: Pick<ShadowCounts, 'totals' | 'errors'>
}

export function addShadowGauges(metrics: Metrics, sources: () => ShadowSources): void {
  metrics.readCounter(
    'eldr_shadow_decisions_total',
    'Decisions of a shadow policy beside those of the policy in force, by whether both chose the same worker (yes, no)',
    ['policy', 'in_force', 'agrees'],
    set => {
      for (const { policy, inForce, decisions, agreed } of sources().shadow.totals) {
        set({ policy, in_force: inForce, agrees: 'yes' }, agreed)
        set({ policy, in_force: inForce, agrees: 'no' }, decisions - agreed)
      }
    },
  )
  metrics.readCounter(
    'eldr_shadow_judged_total',
    'Shadow decisions of requests whose experts could be predicted; the next two metrics are sums over these',
    ['policy', 'in_force'],
    set => {
      for (const { policy, inForce, judged } of sources().shadow.totals)
        set({ policy, in_force: inForce }, judged)
    },
  )
  metrics.readCounter(
    'eldr_shadow_experts_total',
    'Expected distinct experts per layer of a step with the request, at the worker of the shadow policy and at that of the policy in force; an emptier worker has fewer',
    ['policy', 'in_force', 'at'],
    set => {
      for (const { policy, inForce, shadowExperts, inForceExperts } of sources().shadow.totals) {
        set({ policy, in_force: inForce, at: 'shadow' }, shadowExperts)
        set({ policy, in_force: inForce, at: 'in_force' }, inForceExperts)
      }
    },
  )
  metrics.readCounter(
    'eldr_shadow_cost_seconds_total',
    'Expected cost of a step of the request: its time, and what the request adds to it for each of the other requests there, at the worker of the shadow policy and at that of the policy in force',
    ['policy', 'in_force', 'at'],
    set => {
      for (const { policy, inForce, shadowUs, inForceUs } of sources().shadow.totals) {
        set({ policy, in_force: inForce, at: 'shadow' }, shadowUs / 1e6)
        set({ policy, in_force: inForce, at: 'in_force' }, inForceUs / 1e6)
      }
    },
  )
  metrics.readCounter(
    'eldr_shadow_errors_total',
    'Errors of a shadow policy; more than 0 is a bug. Requests are not affected',
    ['policy'],
    set => {
      for (const [policy, errors] of sources().shadow.errors) set({ policy }, errors)
    },
  )
}
