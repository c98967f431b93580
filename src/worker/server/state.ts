/**
 * State of the worker beyond vLLM’s routes: for the cluster table, for the gateway’s estimate of expert
 * unions, and for tests.
 */
import { VERSION } from '../../version.ts'
import type { WorkerEngine } from '../types.ts'
import type { WorkerContext } from './context.ts'

/** `GET /eldr/union`: the distinct experts of the last decode step. */
export function unionOf(engine: WorkerEngine) {
  const { layers, experts, active } = engine.union()
  const counts = Array.from({ length: layers }, (_, l) =>
    active.subarray(l * experts, (l + 1) * experts).reduce((sum, one) => sum + one, 0),
  )
  return {
    layers,
    experts,
    top_k: engine.model.topK,
    batch: engine.stats().batch,
    active: counts,
    /** Base64 of u8 [layer][expert], 1 if active. */
    union: Buffer.from(active.buffer, active.byteOffset, active.length).toString('base64'),
  }
}

/**
 * `GET /eldr/state`: everything that must return to its initial value when the worker is idle, and the data
 * of the cluster table.
 */
export function stateOf({ settings, engine, engineId, live, bodies, handoffs, connections }: WorkerContext) {
  const stats = engine.stats()
  return {
    version: VERSION,
    pid: process.pid,
    role: settings.role,
    model: settings.model,
    max_model_len: settings.maxModelLen,
    engine_id: engineId,
    kv: handoffs && {
      host: handoffs.origin.host,
      port: handoffs.origin.port,
      lease_ms: handoffs.origin.leaseMs,
    },
    requests: live.size,
    notices: live.notices,
    body_bytes: bodies.budget.taken,
    leases: handoffs?.leases.size ?? 0,
    leased_blocks: handoffs?.leases.blocks ?? 0,
    connections: { http: connections(), kv: handoffs?.server.connections ?? 0 },
    rss_bytes: process.memoryUsage.rss(),
    stats: { ...stats, activePerLayer: [...stats.activePerLayer] },
  }
}

export type WorkerState = ReturnType<typeof stateOf>
