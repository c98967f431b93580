/** `eldr serve` in one process, which another process may replace and which may replace another one. */
import { createServer } from 'node:net'
import { setTimeout as wait } from 'node:timers/promises'
import type { Settings } from '../config/settings.ts'
import type { Log } from '../observe/log/log.ts'
import { PROTOCOL } from '../scale/processes/messages.ts'
import { type OwnerParts, OwnerServer } from '../scale/processes/owner-server.ts'
import { LazyFolder } from '../scale/processes/private-folder.ts'
import type { SavedState } from '../scale/processes/saved-state.ts'
import { ownerPath } from '../scale/processes/supervisor-messages.ts'
import { reused, sameAddress, stateFor } from '../scale/replace/handed-state.ts'
import {
  configuredBy,
  type Handed,
  type OwnerAddress,
  portOf,
  type Replaceable,
} from '../scale/replace/messages.ts'
import type { Replacing } from '../scale/replace/successor.ts'
import type { CreateAdaptation } from './adaptation.ts'
import { KeptState } from './kept-state.ts'
import { type Gateway, startGateway } from './start-gateway.ts'

export interface OneProcess extends Replaceable, Pick<Gateway, 'url' | 'context' | 'stop'> {}

/** How long the declaration of tickets may take before the successor serves without it. */
const DECLARE_MS = 2_000

export async function startOneProcess(
  settings: Settings,
  log: Log,
  createAdaptation: CreateAdaptation,
  { takesOver, replace }: Replacing,
): Promise<OneProcess> {
  const number = (takesOver?.handed.lastRelay ?? 0) + 1
  const folder = new LazyFolder()
  process.once('exit', folder.remove)
  let saved = takesOver === undefined ? {} : stateFor(settings, takesOver.handed)
  const kept = new KeptState(settings, {
    saved,
    folder: folder.path,
    log,
    save: part => void (saved = merged(saved, part)),
  })
  const host = takesOver && new TicketHost()
  const gateway = await startGateway(kept.settings, log, {
    continuity: kept.continuity,
    createAdaptation,
    replace,
    takeOver:
      takesOver &&
      (async parts => {
        const socket = await takesOver.socket(await host!.open(ownerPath(takesOver.folder), parts))
        return reused(socket, sameAddress(settings, takesOver.handed))
      }),
  })
  await kept.restore(gateway)
  const { changes, metricsPort, share } = gateway
  const close = () => {
    host?.close()
    folder.remove()
  }
  return {
    url: gateway.url,
    context: gateway.context,
    async handOut() {
      await changes.freeze()
      const handed: Handed = {
        configured: configuredBy(settings),
        port: portOf(gateway.url),
        saved,
        relays: [number],
        lastRelay: number,
      }
      return { handed, listener: gateway.listener }
    },
    async declareTo({ path, protocol }) {
      await metricsPort.close()
      if (protocol === PROTOCOL)
        await Promise.race([share!.declareTo(path, number), wait(DECLARE_MS, undefined, { ref: false })])
      else log.warn('the new version does not count the requests that run in this one')
    },
    takeBack() {
      share!.takeBack()
      changes.thaw()
      metricsPort.takeOver().catch((err: unknown) => log.error({ err }, 'cannot open the metrics port again'))
    },
    async leave() {
      const left = gateway.leave()
      await gateway.stopSharing()
      await left
      close()
    },
    async stop() {
      await gateway.stop()
      close()
    },
  }
}

/** Counts and places the requests that still run in the processes before. */
class TicketHost {
  #server: OwnerServer | undefined
  readonly #listener = createServer(socket => this.#server?.connected(socket))

  async open(path: string, parts: OwnerParts): Promise<OwnerAddress> {
    this.#server = new OwnerServer(parts, { relays: [], roles: [], timeoutMs: 0 })
    await new Promise<void>((listening, failed) =>
      this.#listener.once('error', failed).listen(path, listening),
    )
    this.#listener.unref()
    return { path, protocol: PROTOCOL }
  }

  close(): void {
    this.#listener.close()
    this.#server?.close()
  }
}

/** As JSON would: an undefined value changes nothing. */
function merged(saved: SavedState, part: SavedState): SavedState {
  const given = Object.entries(part).filter(([, value]) => value !== undefined)
  return { ...saved, ...(Object.fromEntries(given) as SavedState) }
}
