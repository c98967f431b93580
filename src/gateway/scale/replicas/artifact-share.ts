/**
 * The artifact in force, the same on all replicas: its hash goes with the shared changes, and its bytes through the store where they are few
 * enough. A replica takes the file at the same path when that has the hash, else the bytes, else it keeps what it has and says so.
 */
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { readFile, stat } from 'node:fs/promises'
import { asFile, SENT } from '../../routing/artifact-file.ts'

export interface SharedArtifact {
  readonly sha256: string
  /** On the machine of whoever loaded it; empty for one that was sent. */
  readonly path: string
}

export interface ArtifactShareOptions {
  readonly namespace: string
  readonly mostBytes: number
  readonly keptMs: number
  readonly ask: (command: readonly (string | Buffer)[]) => Promise<unknown>
  readonly load: (path: string, shownAs?: string) => Promise<unknown>
}

/** Larger than any artifact. */
const MOST_BYTES = 4 * 2 ** 30
/** Until a file of that size is read. */
const READ_MS = 30_000

export class ArtifactShare {
  readonly #options: ArtifactShareOptions
  /** Put into the store again when it has been lost. */
  #mine: { readonly sha256: string; readonly bytes: Buffer } | undefined

  constructor(options: ArtifactShareOptions) {
    this.#options = options
  }

  /** Reads what was loaded here, so that others can have it: by its bytes, or else from its path. */
  async remember({ sha256, path }: SharedArtifact, sent?: Buffer): Promise<void> {
    this.#mine = undefined
    const bytes = sent ?? (await this.#small(path))
    if (bytes === undefined || bytes.length > this.#options.mostBytes || hashOf(bytes) !== sha256) return
    this.#mine = { sha256, bytes: Buffer.from(bytes) }
    await this.put()
  }

  /** Rejects where the store does not take it; without anything to put it does nothing. */
  async put(): Promise<void> {
    if (this.#mine === undefined) return
    const { ask, keptMs } = this.#options
    const { sha256, bytes } = this.#mine
    const there = await ask(['PEXPIRE', this.#key(sha256), String(keptMs)])
    if (there !== 1) await ask(['SET', this.#key(sha256), bytes, 'PX', String(keptMs)])
  }

  /** Rejects with a sentence for people where it cannot be had. */
  async take({ sha256, path }: SharedArtifact): Promise<void> {
    if (path !== '' && (await fileHash(path)) === sha256) {
      await this.#options.load(path)
      // Whoever loaded it first may be gone when the next replica wants it.
      return this.remember({ sha256, path }).catch(() => {})
    }
    const bytes = await this.#options.ask(['GET', this.#key(sha256)])
    if (!Buffer.isBuffer(bytes) || hashOf(bytes) !== sha256)
      throw new Error(
        path === ''
          ? 'its bytes are not in the store'
          : `${path} is another file here, and its bytes are not in the store`,
      )
    await asFile(bytes, file => this.#options.load(file, path === '' ? SENT : path))
    this.#mine = { sha256, bytes }
  }

  #key(sha256: string): string {
    return `${this.#options.namespace}:artifact:${sha256}`
  }

  async #small(path: string): Promise<Buffer | undefined> {
    const { size } = await stat(path)
    return size > this.#options.mostBytes ? undefined : readFile(path)
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

/** Undefined where there is no such file, or it cannot be read. The path comes from the store: it may be a device, or on a disk that hangs. */
async function fileHash(path: string): Promise<string | undefined> {
  try {
    const signal = AbortSignal.timeout(READ_MS)
    const stated = await Promise.race([stat(path), aborted(signal)])
    if (!stated.isFile() || stated.size > MOST_BYTES) return undefined
    const hash = createHash('sha256')
    for await (const part of createReadStream(path, { signal })) hash.update(part as Buffer)
    return hash.digest('hex')
  } catch {
    return undefined
  }
}
