import type { FlagValues } from '../gateway/config/flags/flag-values.ts'
import { type Loaded, loadSettings } from '../gateway/config/load.ts'
import type { Settings } from '../gateway/config/settings.ts'
import { asJson, asYaml } from '../gateway/config/show.ts'
import { createLog, type Log } from '../gateway/observe/log/log.ts'
import { closeLog } from '../gateway/observe/log/log-output.ts'
import { openControlSocket } from '../gateway/scale/replace/control-socket.ts'
import { portOf, type Replaceable } from '../gateway/scale/replace/messages.ts'
import { Replacement } from '../gateway/scale/replace/replacement.ts'
import { type Replacing, SuccessorSide } from '../gateway/scale/replace/successor.ts'
import { commandHere } from './replace.ts'
import { shutdownSignal } from './shutdown-signal.ts'

export interface Served extends Replaceable {
  readonly url: string
  readonly context: { readonly logLevel: { toggleDebug(): unknown } }
  stop(): Promise<void>
}
export type StartGateway = (settings: Settings, log: Log, replacing: Replacing) => Promise<Served>

/** `eldr serve`: runs until a signal stops it, then drains. */
export async function serveAction(flags: FlagValues, start: StartGateway): Promise<void> {
  const successor = SuccessorSide.find()
  if (successor === undefined) return serveFirst(flags, start)
  try {
    await serveNext(flags, start, successor)
  } catch (error) {
    successor.failed(error)
    throw error
  }
}

/** The process that the operator starts, and the parent of those that replace it. */
async function serveFirst(flags: FlagValues, start: StartGateway): Promise<void> {
  const { settings, log, stopSignal } = await loaded(flags)
  const { host, replaceReadyMs, shutdownGraceMs } = settings.server
  let gateway: Served | undefined
  let replacement: Replacement | undefined
  // Before the start: the default action of SIGUSR2 ends the process.
  process.on('SIGUSR2', () => {
    if (replacement?.child === undefined) gateway?.context.logLevel.toggleDebug()
    else replacement.child.kill('SIGUSR2')
  })
  gateway = await start(settings, log, { replace: () => replacement!.replace() })
  const at = (url: string) => `${host}:${portOf(url)}`
  replacement = new Replacement({
    first: gateway,
    command: commandHere(),
    readyMs: replaceReadyMs,
    log,
    replaced(url) {
      try {
        control?.rename(at(url))
      } catch (error) {
        log.warn({ err: error }, '`eldr serve --replace` can no longer reach this gateway')
      }
    },
  })
  const control = await openControlSocket(at(gateway.url), replacement.replace).catch((error: unknown) => {
    log.debug({ err: error }, '`eldr serve --replace` cannot reach this gateway; POST /eldr/replace can')
    return undefined
  })
  log.info(`listening on ${gateway.url}`)
  const ended = await Promise.race([stopSignal, replacement.ended])
  if (typeof ended === 'number') log.error({ code: ended }, 'the process that served has ended')
  else logStop(log, ended, shutdownGraceMs)
  control?.close()
  const code = await replacement.stop()
  log.info('stopped')
  await closeLog()
  if (typeof ended === 'number') process.exit(ended || 1)
  if (code !== 0) process.exit(code)
}

/** A process that replaces another one, and may be replaced. */
async function serveNext(flags: FlagValues, start: StartGateway, successor: SuccessorSide): Promise<void> {
  // A service manager may signal every process, and the first one passes its signal on: that is one stop. A
  // second one ends the first process, and this one with it.
  const { settings, log, stopSignal } = await loaded(flags, () => {})
  const { replaceReadyMs, shutdownGraceMs } = settings.server
  let gateway: Served | undefined
  process.on('SIGUSR2', () => gateway?.context.logLevel.toggleDebug())
  const takesOver = await successor.takesOver(replaceReadyMs)
  gateway = await start(settings, log, { takesOver, replace: successor.replace })
  const left = new Promise<undefined>(resolve => {
    successor.left = ended => void ended.then(() => resolve(undefined))
  })
  successor.serving(gateway)
  log.info(`listening on ${gateway.url}`)
  const signal = await Promise.race([stopSignal, left])
  if (signal !== undefined) {
    logStop(log, signal, shutdownGraceMs)
    await gateway.stop()
  }
  log.info('stopped')
  await closeLog()
  process.exit(0) // the channel to the first process is open
}

async function loaded(flags: FlagValues, force?: () => void) {
  const loaded = await loadSettings({ flags, env: process.env })
  const log = createLog(loaded.settings.observe)
  for (const warning of loaded.warnings) log.warn(warning)
  logConfiguration(log, loaded)
  // Listen before the start, which may take a while: a signal that arrives meanwhile stops the gateway once
  // it is up.
  return { settings: loaded.settings, log, stopSignal: shutdownSignal({ repeatMs: 0, force }) }
}

function logStop(log: Log, signal: NodeJS.Signals, graceMs: number): void {
  log.info(
    `${signal}: shutting down; running streams may continue for ${graceMs / 1000} s, a second signal ends them`,
  )
}

/** Logs YAML to a terminal and an object otherwise. Origins of default values are left out. */
function logConfiguration(log: Log, { settings, origins }: Loaded): void {
  const { logFormat } = settings.observe
  const loaded = { settings, origins: new Map([...origins].filter(([, { kind }]) => kind !== 'default')) }
  const pretty = logFormat === 'pretty' || (logFormat === 'auto' && process.stderr.isTTY)
  if (pretty) log.info(`configuration\n${asYaml(loaded).trimEnd().replaceAll(/^/gm, '  ')}`)
  else log.info(asJson(loaded), 'configuration')
}
