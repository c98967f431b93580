/** `eldr bench --sweep` without --url: starts a cluster for the sweep and stops it afterwards. */
import { parseTopology } from '../sim/topology.ts'
import { EmbeddedCluster } from '../up/cluster.ts'
import { NO_EVENTS } from '../up/cluster-events.ts'
import type { BenchFlags } from './bench.ts'
import { usageError } from './options.ts'
import type { benchSweepAction } from './bench-sweep-action.ts'
import { shutdownSignal } from './shutdown-signal.ts'
import { clusterFiles, clusterSettings } from './up-cluster.ts'

const TOPOLOGY = '2P4D'
const PROFILE = 'h200-first'

export async function sweepOnOwnCluster(flags: BenchFlags, sweep: typeof benchSweepAction): Promise<void> {
  const { prefill, decode, ranks, perDevice = 1 } = parseTopology(flags.topology ?? TOPOLOGY)
  if (prefill === 0 || ranks > 1 || perDevice > 1)
    throw usageError(
      `--topology ${flags.topology} without --url`,
      'prefill workers and decode workers of one GPU each, such as 2P8D',
      'Change the topology, or pass --url.',
    )
  const { profile = PROFILE, trace, artifact, seed } = flags
  const files = await clusterFiles({ profile, decode, trace, artifact })
  const settings = clusterSettings(
    { prefill, decode, host: '127.0.0.1', port: 0, profile, speed: 1, seed },
    files,
  )
  const cluster = new EmbeddedCluster(settings, NO_EVENTS)
  void shutdownSignal().then(async signal => {
    await cluster.stop()
    process.removeAllListeners(signal)
    process.kill(process.pid, signal)
  })
  await cluster.start()
  const sweepFlags = {
    ...flags,
    url: cluster.url,
    trace: files.trace,
    artifact: settings.artifact ?? artifact,
  }
  await sweep(sweepFlags, () => cluster.attach()).finally(() => cluster.stop())
}
