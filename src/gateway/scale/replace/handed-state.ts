/**
 * The state that a successor starts with. Admin changes stay in force, except for settings that the new
 * configuration changes: the operator who edits a setting means it.
 */
import type { WorkerSpec } from '../../../cluster/worker.ts'
import type { Settings } from '../../config/settings.ts'
import type { ListenHandle } from '../../http/listen.ts'
import type { SavedState, SavedWorker } from '../processes/saved-state.ts'
import { type Configured, configuredBy, type Handed } from './messages.ts'

export function stateFor(settings: Settings, { configured: before, saved }: Handed): SavedState {
  const now = configuredBy(settings)
  return {
    ...saved,
    workers: workersFor(now, before, saved),
    routing: routingFor(now, before, saved),
    ...artifactFor(now, before, saved),
    logLevel: now.logLevel === before.logLevel ? saved.logLevel : undefined,
  }
}

/** Whether the successor listens on the same socket. */
export function sameAddress(
  { server }: Settings,
  { configured: { host, port }, port: actual }: Handed,
): boolean {
  return server.host === host && [port, actual].includes(server.port)
}

/** The socket of the process before; it is closed if the new configuration has another address. */
export function reused(socket: ListenHandle, isSame: boolean): ListenHandle | undefined {
  if (isSame) return socket
  socket.close()
  return undefined
}

function routingFor(
  { routing: now }: Configured,
  { routing: before }: Configured,
  { routing }: SavedState,
): SavedState['routing'] {
  return {
    policy: now.policy === before.policy ? routing?.policy : undefined,
    tau: now.tau === before.tau ? routing?.tau : undefined,
    prefillPolicy: now.prefillPolicy === before.prefillPolicy ? routing?.prefillPolicy : undefined,
  }
}

/** The configured artifact is read from its file again, which may have been replaced; another one stays. */
function artifactFor(
  { routing: now, workers }: Configured,
  { routing: before, workers: workersBefore }: Configured,
  { artifact, clusters }: SavedState,
): Pick<SavedState, 'artifact' | 'clusters'> {
  if (now.artifact !== before.artifact) return { artifact: undefined, clusters: undefined }
  return {
    artifact: artifact?.shownAs === before.artifact ? undefined : artifact,
    // Other workers may need another number.
    clusters: areSame(workers, workersBefore) ? clusters : undefined,
  }
}

const areSame = (a: readonly WorkerSpec[], b: readonly WorkerSpec[]): boolean =>
  JSON.stringify(a) === JSON.stringify(b)

function workersFor(now: Configured, before: Configured, { workers = [] }: SavedState): SavedWorker[] {
  if (areSame(now.workers, before.workers)) return [...workers]
  const known = (spec: WorkerSpec) => workers.find(each => isSame(each.spec, spec))
  const wasRemoved = (spec: WorkerSpec) =>
    before.workers.some(each => isSame(each, spec)) && known(spec) === undefined
  const configured = now.workers
    .filter(spec => !wasRemoved(spec))
    .map(spec => ({ drained: false, healthy: false, ...known(spec), spec, index: undefined }))
  const isTaken = ({ id, url, dpRank }: WorkerSpec) =>
    configured.some(({ spec }) => spec.id === id || (spec.url === url && spec.dpRank === dpRank))
  const added = workers
    .filter(({ spec }) => spec.source === 'admin' && !isTaken(spec))
    .map(worker => ({ ...worker, index: undefined }))
  return [...configured, ...added]
}

function isSame(a: WorkerSpec, b: WorkerSpec): boolean {
  return a.id === b.id && a.url === b.url && a.dpRank === b.dpRank && a.role === b.role
}
