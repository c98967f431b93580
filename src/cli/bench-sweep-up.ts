/** `eldr bench --sweep` without an address: on a cluster that is started for it and stopped after it. */
import { parseTopology } from '../sim/topology.ts'
import { EmbeddedCluster } from '../up/cluster.ts'
import { NO_EVENTS } from '../up/cluster-events.ts'
import type { BenchFlags } from './bench.ts'
import { wrong } from './bench-flags.ts'
import type { benchSweepAction } from './bench-sweep-action.ts'
import { firstSignal } from './first-signal.ts'
import { clusterFiles, clusterSettings } from './up-cluster.ts'

const TOPOLOGY = '2P4D'
const PROFILE = 'h200-first'

export async function sweepOnOwnCluster(flags: BenchFlags, sweep: typeof benchSweepAction): Promise<void> {
  const { prefill, decode, ranks } = parseTopology(flags.topology ?? TOPOLOGY)
  if (prefill === 0 || ranks > 1)
    throw wrong(
      `--topology ${flags.topology} without --url`,
      'prefill and decode workers of one rank, such as 2P8D',
      'Change it.',
    )
  const { profile = PROFILE, trace, artifact, seed } = flags
  const files = await clusterFiles({
    profile,
    decode,
    ...(trace !== undefined && { trace }),
    ...(artifact !== undefined && { artifact }),
  })
  const settings = clusterSettings(
    { prefill, decode, host: '127.0.0.1', port: 0, profile, speed: 1, seed },
    files,
  )
  const cluster = new EmbeddedCluster(settings, NO_EVENTS)
  void firstSignal().then(async signal => {
    await cluster.stop()
    process.removeAllListeners(signal)
    process.kill(process.pid, signal)
  })
  await cluster.start()
  const known = {
    ...flags,
    url: cluster.url,
    trace: files.trace,
    ...(settings.artifact !== undefined && { artifact: settings.artifact }),
  }
  await sweep(known, () => cluster.attach()).finally(() => cluster.stop())
}
