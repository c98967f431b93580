/** `eldr up`: ends when a signal told it to, and every process that it started has ended. */
import { EldrError } from '../errors.ts'
import { terminalOn } from '../report/terminal.ts'
import { type BackgroundLoad, startBackgroundLoad } from '../up/background-load.ts'
import { EmbeddedCluster } from '../up/cluster.ts'
import { Observer } from '../up/observe.ts'
import { Screen } from '../up/screen.ts'
import { startWatch, type Watch } from '../up/up-watch.ts'
import { firstSignal } from './first-signal.ts'
import { tinyFiles } from './tiny-files.ts'
import {
  carriedSpeed,
  clusterFiles,
  type ClusterFiles,
  clusterSettings,
  curlLine,
  usualRate,
} from './up-cluster.ts'
import { jsonVoice, personVoice, type Voice } from './up-voice.ts'
import type { UpFlags } from './up.ts'

const LIVE_EVERY_MS = 500
const JSON_EVERY_MS = 1_000
const PLAIN_EVERY_MS = 5_000
/** Of the profile's time: requests of the trace decode for less than this. */
const SETTLE_SECONDS = 1

export async function upAction(given: UpFlags): Promise<void> {
  const fromMs = performance.now()
  const rate = given.load === true ? usualRate(given) : given.load
  const flags = { ...given, speed: given.speed ?? (rate === undefined ? 1 : carriedSpeed(rate, given)) }
  if (given.pace === 'real' && given.speed !== undefined)
    throw new EldrError('ELDR_USAGE', {
      found: '--speed with --pace real',
      expected: 'one of them',
      todo: 'Steps that take what they really take have no speed: leave --speed out, or take --pace profile.',
    })
  const told = firstSignal()
  const out = terminalOn(process.stdout)
  const screen = new Screen(out, () => process.stdout.rows ?? 24)
  const voice = flags.json ? jsonVoice(flags, out) : personVoice({ ...flags, rate }, screen, out)
  const files =
    flags.backend === 'tiny'
      ? await tinyFiles(flags, flags.pace, rate !== undefined)
      : await clusterFiles(flags)
  const settings = clusterSettings(flags, files, flags.policy)
  voice.starting(files)
  const cluster = new EmbeddedCluster(settings, voice.events)
  const started = cluster.start()
  const early = await Promise.race([started, told])
  if (early !== undefined) {
    voice.stopping(early)
    // That the start then fails is no news.
    await Promise.all([cluster.stop(), started.catch(() => undefined)])
    return voice.stopped()
  }
  const { url } = cluster
  const ms = performance.now() - fromMs
  voice.ready({
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
  const watch = flags.table || flags.json ? follow(flags, screen, observer, files, voice, load) : undefined
  voice.stopping(await told)
  await Promise.all([watch?.stop(), load?.stop()])
  await Promise.all([observer.close(), cluster.stop()])
  voice.stopped()
}

function follow(
  flags: UpFlags & { readonly speed: number },
  screen: Screen,
  observer: Observer,
  { mixed }: ClusterFiles,
  voice: Voice,
  load: BackgroundLoad | undefined,
): Watch {
  return startWatch({
    look: () => observer.look(),
    mixed,
    speed: flags.speed,
    settleSeconds: SETTLE_SECONDS,
    everyMs: flags.json ? JSON_EVERY_MS : screen.isLive ? LIVE_EVERY_MS : PLAIN_EVERY_MS,
    onView: (view, seconds) => voice.view(view, seconds, load?.failure),
  })
}
