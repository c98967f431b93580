/** `eldr up`: runs until a signal stops it, then ends every process that it started. */
import { EldrError } from '../errors.ts'
import { terminalOn } from '../report/terminal.ts'
import { startBackgroundLoad } from '../up/background-load.ts'
import { EmbeddedCluster } from '../up/cluster.ts'
import { Observer } from '../up/observe.ts'
import { Screen } from '../up/screen.ts'
import { startWatch } from '../up/up-watch.ts'
import { shutdownSignal } from './shutdown-signal.ts'
import { tinyFiles } from './tiny-files.ts'
import { affordableSpeed, clusterFiles, clusterSettings, curlLine, defaultRate } from './up-cluster.ts'
import { jsonOutput, textOutput } from './up-output.ts'
import type { UpFlags } from './up.ts'

const LIVE_EVERY_MS = 500
const JSON_EVERY_MS = 1_000
const PLAIN_EVERY_MS = 5_000
/** In profile time: longer than any request of the trace decodes. */
const SETTLE_SECONDS = 1

export async function upAction(typed: UpFlags): Promise<void> {
  const fromMs = performance.now()
  const rate = typed.load === true ? defaultRate(typed) : typed.load
  const flags = { ...typed, speed: typed.speed ?? (rate === undefined ? 1 : affordableSpeed(rate, typed)) }
  if (typed.pace === 'real' && typed.speed !== undefined)
    throw new EldrError('ELDR_USAGE', {
      found: '--speed with --pace real',
      expected: 'one of them',
      todo: 'Remove --speed, which scales only profile times, or use --pace profile.',
    })
  const stopSignal = shutdownSignal()
  const out = terminalOn(process.stdout)
  const screen = new Screen(out, () => process.stdout.rows ?? 24)
  const output = flags.json ? jsonOutput(flags, out) : textOutput({ ...flags, rate }, screen, out)
  const files =
    flags.backend === 'tiny'
      ? await tinyFiles(flags, flags.pace, rate !== undefined)
      : await clusterFiles(flags)
  const settings = { ...clusterSettings(flags, files, flags.policy), shadow: flags.shadow }
  output.starting(files)
  const cluster = new EmbeddedCluster(settings, output.events)
  const started = cluster.start()
  const early = await Promise.race([started, stopSignal])
  if (early !== undefined) {
    output.stopping(early)
    // A failing start is expected here: its processes are being stopped.
    await Promise.all([cluster.stop(), started.catch(() => undefined)])
    return output.stopped()
  }
  const { url } = cluster
  const ms = performance.now() - fromMs
  output.ready({
    url,
    model: files.model,
    policy: settings.policy,
    curl: curlLine(url, files.model),
    pids: cluster.pids,
    ms,
  })
  const load =
    rate === undefined
      ? undefined
      : startBackgroundLoad({
          url,
          rows: files.rows,
          sourceOf: files.sourceOf,
          model: files.model,
          rate: rate * flags.speed,
          seed: flags.seed,
        })
  const observer = new Observer(cluster)
  const everyMs = flags.json ? JSON_EVERY_MS : screen.isLive ? LIVE_EVERY_MS : PLAIN_EVERY_MS
  const watch =
    flags.table || flags.json
      ? startWatch({
          look: () => observer.look(),
          mixed: files.mixed,
          speed: flags.speed,
          settleSeconds: SETTLE_SECONDS,
          everyMs,
          onView: (view, seconds) => output.view(view, seconds, load?.failure),
        })
      : undefined
  output.stopping(await stopSignal)
  await Promise.all([watch?.stop(), load?.stop()])
  await Promise.all([observer.close(), cluster.stop()])
  output.stopped()
}
