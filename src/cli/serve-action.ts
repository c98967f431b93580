import type { FlagValues } from '../gateway/config/flags/flag-values.ts'
import { type Loaded, loadSettings } from '../gateway/config/load.ts'
import type { Settings } from '../gateway/config/settings.ts'
import { asJson, asYaml } from '../gateway/config/show.ts'
import { createLog, type Log } from '../gateway/observe/log/log.ts'
import { closeLog } from '../gateway/observe/log/log-output.ts'
import { shutdownSignal } from './shutdown-signal.ts'

export interface Served {
  readonly url: string
  readonly context: { readonly logLevel: { toggleDebug(): unknown } }
  stop(): Promise<void>
}
export type StartGateway = (settings: Settings, log: Log) => Promise<Served>

/** `eldr serve`: runs until a signal stops it, then drains. */
export async function serveAction(flags: FlagValues, start: StartGateway): Promise<void> {
  const loaded = await loadSettings({ flags, env: process.env })
  const { observe, server } = loaded.settings
  const log = createLog(observe)
  for (const warning of loaded.warnings) log.warn(warning)
  logConfiguration(log, loaded)
  // Listen before the start, which may take a while: a signal that arrives meanwhile stops the gateway once
  // it is up.
  const stopSignal = shutdownSignal({ repeatMs: 0 })
  let gateway: Served | undefined
  // Before the start: the default action of SIGUSR2 ends the process.
  process.on('SIGUSR2', () => gateway?.context.logLevel.toggleDebug())
  gateway = await start(loaded.settings, log)
  log.info(`listening on ${gateway.url}`)
  const signal = await stopSignal
  log.info(
    `${signal}: shutting down; running streams may continue for ${server.shutdownGraceMs / 1000} s, a second signal ends them`,
  )
  await gateway.stop()
  log.info('stopped')
  await closeLog()
}

/** Logs YAML to a terminal and an object otherwise. Origins of default values are left out. */
function logConfiguration(log: Log, { settings, origins }: Loaded): void {
  const { logFormat } = settings.observe
  const loaded = { settings, origins: new Map([...origins].filter(([, { kind }]) => kind !== 'default')) }
  const pretty = logFormat === 'pretty' || (logFormat === 'auto' && process.stderr.isTTY)
  if (pretty) log.info(`configuration\n${asYaml(loaded).trimEnd().replaceAll(/^/gm, '  ')}`)
  else log.info(asJson(loaded), 'configuration')
}
