/**
 * State that outlives a process: restored when a gateway starts in place of another one, and saved at every
 * change.
 */
import { resolve } from 'node:path'
import type { Settings } from '../config/settings.ts'
import type { Log } from '../observe/log/log.ts'
import type { LogLevelControl } from '../observe/log/log-level.ts'
import { KeptArtifact } from '../scale/processes/kept-artifact.ts'
import {
  addSaved,
  DiscoveryMemory,
  levelOf,
  restoreLevel,
  routingOf,
  type SavedState,
  savedWorkers,
  settingsWith,
} from '../scale/processes/saved-state.ts'
import type { Continuity } from './hosting.ts'
import type { Gateway } from './start-gateway.ts'

export interface KeptStateOptions {
  readonly saved: SavedState
  /** For copies of artifacts. */
  folder(): string
  readonly log: Log
  save(part: SavedState): void
  levelChanged?(): void
}

export class KeptState {
  /** The configured settings with the saved changes. */
  readonly settings: Settings
  readonly continuity: Continuity
  readonly artifacts: KeptArtifact
  readonly #saved: SavedState
  readonly #save: (part: SavedState) => void
  readonly #discovery: DiscoveryMemory
  /** Undefined while the gateway starts: nothing has changed yet. */
  #level: LogLevelControl | undefined

  constructor(given: Settings, { saved, folder, log, save, levelChanged }: KeptStateOptions) {
    this.settings = settingsWith(given, saved)
    this.#saved = saved
    this.#save = save
    this.#discovery = new DiscoveryMemory(saved.discovery)
    this.artifacts = new KeptArtifact(folder, saved.artifact?.path, log, artifact => save({ artifact }))
    this.continuity = {
      addWorkers: saved.workers && (registry => addSaved(registry, saved)),
      artifactLoaded: (path, shownAs) => this.artifacts.loaded(resolve(path), shownAs),
      artifactShownAs: saved.artifact?.shownAs,
      memoryOf: source => this.#discovery.of(source),
      replicaMemory: { pending: saved.pending ?? {}, pendingChanged: pending => save({ pending }) },
      levelChanged: () => {
        levelChanged?.()
        if (this.#level !== undefined) save(levelOf(this.#level.view()))
      },
      routingChanged: change => save(routingOf(change)),
    }
  }

  /** Restores what needs a running gateway, and saves changes of workers from now on. */
  async restore({ control, context: { registry, logLevel } }: Gateway): Promise<void> {
    this.#level = logLevel
    const { artifact, clusters, logLevel: level } = this.#saved
    if (artifact !== undefined) await this.artifacts.adopt(artifact)
    if (clusters !== undefined) void control.restoreClusters(clusters)
    if (level !== undefined) restoreLevel(logLevel, level)
    const saveWorkers = () => this.#save({ ...savedWorkers(registry), ...this.#discovery.saved })
    registry.subscribe(({ kind }) => {
      if (!kind.startsWith('breaker_')) saveWorkers()
    })
    saveWorkers()
  }
}
