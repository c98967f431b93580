import type { FlagValues } from '../gateway/config/flags/flag-values.ts'
import { type Loaded, loadSettings } from '../gateway/config/load.ts'
import type { Settings } from '../gateway/config/settings.ts'
import { asJson, asYaml } from '../gateway/config/show.ts'
import { createLog, type Log } from '../gateway/observe/log/log.ts'
import { closeLog } from '../gateway/observe/log/log-output.ts'
import { toldToStop } from './told-to-stop.ts'

export interface Served {
  readonly url: string
  readonly context: { readonly logLevel: { toggleDebug(): unknown } }
  stop(): Promise<void>
}
export type StartGateway = (settings: Settings, log: Log) => Promise<Served>

/** `eldr serve`: ends when a signal told it to and what was under way has ended too. */
export async function serveAction(flags: FlagValues, start: StartGateway): Promise<void> {
  const loaded = await loadSettings({ flags, env: process.env })
  const { observe, server } = loaded.settings
  const log = createLog(observe)
  for (const warning of loaded.warnings) log.warn(warning)
  logConfiguration(log, loaded)
  // Before the start, which may take a while: a signal that comes meanwhile stops the gateway as soon as it stands.
  const told = toldToStop()
  let gateway: Served | undefined
  process.on('SIGUSR2', () => gateway?.context.logLevel.toggleDebug()) // before the start: a process that does not listen to it ends of it
  gateway = await start(loaded.settings, log)
  log.info(`listening on ${gateway.url}`)
  const signal = await told
  log.info(
    `${signal}: stopping; streams may go on for ${server.shutdownGraceMs / 1000} s, a second signal ends them`,
  )
  await gateway.stop()
  log.info('stopped')
  await closeLog()
}

/** As lines where a person looks, as an object for programs; what has its default needs no origin. */
function logConfiguration(log: Log, { settings, origins }: Loaded): void {
  const { logFormat } = settings.observe
  const loaded = { settings, origins: new Map([...origins].filter(([, { kind }]) => kind !== 'default')) }
  const pretty = logFormat === 'pretty' || (logFormat === 'auto' && process.stderr.isTTY)
  if (pretty) log.info(`configuration\n${asYaml(loaded).trimEnd().replaceAll(/^/gm, '  ')}`)
  else log.info(asJson(loaded), 'configuration')
}
