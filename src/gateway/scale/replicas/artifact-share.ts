/**
 * Keeps the artifact in force the same on all replicas. Its hash is part of the shared changes; its bytes go
 * through the store if they are small enough. A replica loads the file at the same path if the hash matches,
 * or else the bytes; if it has neither, it keeps its artifact and reports the problem.
 */
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { readFile, stat } from 'node:fs/promises'
import { asFile, SENT } from '../../routing/artifact-file.ts'

export interface SharedArtifact {
  readonly sha256: string
  /** Path on the machine that loaded it; empty if the artifact was uploaded. */
  readonly path: string
}

export interface ArtifactShareOptions {
  readonly namespace: string
  readonly maxBytes: number
  readonly keptMs: number
  readonly ask: (command: readonly (string | Buffer)[]) => Promise<unknown>
  readonly load: (path: string, shownAs?: string) => Promise<unknown>
  /** File of the artifact that this process started with, such as the last owner's copy. */
  readonly startedWith?: string
}

/** No artifact is larger. */
const MAX_BYTES = 4 * 2 ** 30
/** Timeout for reading a file of that size. */
const READ_MS = 30_000

export class ArtifactShare {
  readonly #options: ArtifactShareOptions
  /** Kept to restore it if the store loses it. */
  #stored: { readonly sha256: string; readonly bytes: Buffer } | undefined

  constructor(options: ArtifactShareOptions) {
    this.#options = options
  }

  /** Stores the artifact that was loaded here for the other replicas, if it is small enough. */
  async remember({ sha256, path }: SharedArtifact, sent?: Buffer): Promise<void> {
    this.#stored = undefined
    const bytes = sent ?? (await this.#readIfSmall(path))
    if (bytes === undefined || bytes.length > this.#options.maxBytes || hashOf(bytes) !== sha256) return
    this.#stored = { sha256, bytes: Buffer.from(bytes) }
    await this.put()
  }

  /** Writes the artifact or renews its expiry. Rejects if the store refuses it. */
  async put(): Promise<void> {
    if (this.#stored === undefined) return
    const { ask, keptMs } = this.#options
    const { sha256, bytes } = this.#stored
    const renewed = await ask(['PEXPIRE', this.#key(sha256), String(keptMs)])
    if (renewed !== 1) await ask(['SET', this.#key(sha256), bytes, 'PX', String(keptMs)])
  }

  /**
   * Keeps the bytes of the artifact in force, so that this process restores them if the store loses them. It
   * has not read them if an earlier process of this gateway did.
   */
  async keep({ sha256 }: SharedArtifact): Promise<void> {
    const { startedWith } = this.#options
    if (this.#stored?.sha256 === sha256 || startedWith === undefined) return
    const bytes = await this.#readIfSmall(startedWith).catch(() => undefined)
    if (bytes !== undefined && hashOf(bytes) === sha256) this.#stored = { sha256, bytes }
  }

  /** Loads another replica's artifact. Rejects with a reason for people if it is not available. */
  async take({ sha256, path }: SharedArtifact): Promise<void> {
    if (path !== '' && (await fileHash(path)) === sha256) {
      await this.#options.load(path)
      // The replica that loaded it first may be gone when the next one needs it.
      return this.remember({ sha256, path }).catch(() => {})
    }
    const bytes = await this.fetch(sha256)
    if (bytes === undefined)
      throw new Error(
        path === ''
          ? 'its bytes are not in the store'
          : `${path} is a different file here, and its bytes are not in the store`,
      )
    await asFile(bytes, file => this.#options.load(file, path === '' ? SENT : path))
    this.#stored = { sha256, bytes }
  }

  /** Bytes of an artifact that a replica has stored, as long as the store keeps them. */
  async fetch(sha256: string): Promise<Buffer | undefined> {
    const bytes = await this.#options.ask(['GET', this.#key(sha256)])
    return Buffer.isBuffer(bytes) && hashOf(bytes) === sha256 ? bytes : undefined
  }

  #key(sha256: string): string {
    return `${this.#options.namespace}:artifact:${sha256}`
  }

  async #readIfSmall(path: string): Promise<Buffer | undefined> {
    const { size } = await stat(path)
    return size > this.#options.maxBytes ? undefined : readFile(path)
  }
}

export function sharedArtifactIn(text: string): SharedArtifact | undefined {
  try {
    const { sha256, path } = JSON.parse(text) as Record<string, unknown>
    return typeof sha256 === 'string' && /^[\da-f]{64}$/.test(sha256) && typeof path === 'string'
      ? { sha256, path }
      : undefined
  } catch {
    return undefined
  }
}

const aborted = (signal: AbortSignal) =>
  new Promise<never>((_, reject) =>
    signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true }),
  )
const hashOf = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex')

/**
 * Undefined if the file cannot be read. The path comes from the store: it may be a device, or on a disk that
 * hangs.
 */
async function fileHash(path: string): Promise<string | undefined> {
  try {
    const signal = AbortSignal.timeout(READ_MS)
    const stated = await Promise.race([stat(path), aborted(signal)])
    if (!stated.isFile() || stated.size > MAX_BYTES) return undefined
    const hash = createHash('sha256')
    for await (const part of createReadStream(path, { signal })) hash.update(part as Buffer)
    return hash.digest('hex')
  } catch {
    return undefined
  }
}
