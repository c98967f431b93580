/**
 * Keeps what operators change at runtime the same on all replicas: policy, τ, artifact, refits, drained
 * workers. It is one hash in the store with a field for each. A change sets its fields and the version
 * atomically, so the store orders changes, the last write to a field wins, and concurrent changes lose
 * nothing. Replicas read the whole hash and apply it, whatever they missed.
 *
 * A version is the store's clock, and always higher than the last: a store that has lost its data gets it
 * back from a replica, and later changes are still newer.
 */
import { StoreRefusal } from './store-session.ts'

export type Fields = Readonly<Record<string, string>>
type Ask = (command: readonly (string | Buffer)[]) => Promise<unknown>

export interface ChangesOptions {
  readonly key: string
  readonly channel: string
  /** How long changes are kept after the last replica has stopped. */
  readonly keptMs: number
  readonly ask: Ask
  /** The message that is published with a change. */
  readonly notice: () => Buffer
  /** Applies the fields of the store, overridden by local changes that are not stored yet. Never rejects. */
  readonly apply: (fields: Fields) => Promise<void>
  /** Called when the store refuses a command. */
  readonly refused: (why: string) => void
  /** Changes that an earlier process made and could not store. */
  readonly pending?: Fields
  /** Called with all changes that are not in the store, whenever they change. */
  readonly pendingChanged?: (pending: Fields) => void
}

const VERSION = 'version'
/** A version further ahead of the store's clock was not written by a replica, and counts as none. */
const MAX_AHEAD_MS = 86_400_000
const LAST = `local t = redis.call('TIME'); local now = t[1] * 1000 + math.floor(t[2] / 1000)
local last = tonumber(redis.call('HGET', KEYS[1], '${VERSION}') or '') or 0
if not (last > 0 and last <= now + ${MAX_AHEAD_MS}) then last = 0 end`
const PUT = `for i = 5, #ARGV, 2 do
if ARGV[i + 1] == '' then redis.call('HDEL', KEYS[1], ARGV[i])
else redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end end
redis.call('HSET', KEYS[1], '${VERSION}', string.format('%.0f', version))
redis.call('PEXPIRE', KEYS[1], ARGV[1]); redis.call('PUBLISH', ARGV[2], ARGV[3])
return string.format('%.0f', version)`
/** The new version is higher than the stored one and than the last that this replica has seen. */
const WRITE = `${LAST}; local version = math.max(last + 1, now, tonumber(ARGV[4]) + 1); ${PUT}`
/** Replaces only an older version. */
const RESTORE = `${LAST}; local version = tonumber(ARGV[4])
if last >= version then return string.format('%.0f', last) end
redis.call('DEL', KEYS[1]); ${PUT}`

export class SharedChanges {
  readonly #options: ChangesOptions
  #version = 0
  #known: Fields = {}
  /** Local changes that are not in the store yet. */
  #pending = new Map<string, string>()
  #running = false
  #syncRequested = false

  constructor(options: ChangesOptions) {
    this.#options = options
    this.#pending = new Map(Object.entries(options.pending ?? {}))
  }

  get version(): number {
    return this.#version
  }

  /** Number of changes that are not in the store yet. */
  get waiting(): number {
    return this.#pending.size
  }

  /** Publishes a change that was made here. An empty field is removed. */
  made(fields: Fields): void {
    this.claim(fields)
    this.sync()
  }

  /**
   * Records a change that was made here, so that the stored state does not undo it. It is published by the
   * next sync.
   */
  claim(fields: Fields): void {
    for (const [name, value] of Object.entries(fields)) this.#pending.set(name, value)
    this.#pendingChanged()
  }

  /** Reads, writes and applies; once more if called meanwhile. */
  sync(): void {
    this.#syncRequested = true
    if (!this.#running) void this.#run()
  }

  /** For a new worker that may have to be drained, and to retry what failed. */
  async reapply(): Promise<void> {
    if (this.#version > 0) await this.#options.apply(this.#target())
  }

  /** Called periodically: renews the expiry of the hash, and syncs if its version differs. */
  async renew(): Promise<void> {
    const { key, keptMs, ask } = this.#options
    await this.#reportRefusal(async () => {
      const version = await ask(['HGET', key, VERSION])
      if (version !== null) await ask(['PEXPIRE', key, String(keptMs)])
      if (Number(version ?? 0) !== this.#version || this.#pending.size > 0) this.sync()
    })
  }

  async #run(): Promise<void> {
    this.#running = true
    while (this.#syncRequested) {
      this.#syncRequested = false
      await this.#reportRefusal(() => this.#syncOnce())
    }
    this.#running = false
  }

  async #syncOnce(): Promise<void> {
    const { key, ask, apply } = this.#options
    const read = async () => {
      const fields = fieldsOf(await ask(['HGETALL', key]))
      return { fields, version: versionOf(fields[VERSION], msOf(await ask(['TIME']))) }
    }
    let stored = await read()
    if (stored.version < this.#version) {
      // A store that refuses writes can still be read.
      await this.#reportRefusal(async () => void (await this.#script(RESTORE, this.#known, this.#version)))
      stored = await read()
    }
    if (this.#pending.size > 0) {
      await this.#reportRefusal(() => this.#write())
      stored = await read()
    }
    if (stored.version <= this.#version) return
    const { [VERSION]: _, ...fields } = stored.fields
    this.#version = stored.version
    this.#known = fields
    await apply(this.#target())
  }

  async #write(): Promise<void> {
    const pending = new Map(this.#pending)
    await this.#script(WRITE, Object.fromEntries(pending), this.#version)
    for (const [name, value] of pending) if (this.#pending.get(name) === value) this.#pending.delete(name)
    this.#pendingChanged()
  }

  #pendingChanged(): void {
    this.#options.pendingChanged?.(Object.fromEntries(this.#pending))
  }

  #target(): Fields {
    const fields = { ...this.#known, ...Object.fromEntries(this.#pending) }
    return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== ''))
  }

  #script(script: string, fields: Fields, version: number): Promise<unknown> {
    const { key, channel, keptMs, ask, notice } = this.#options
    return ask([
      'EVAL',
      script,
      '1',
      key,
      String(keptMs),
      channel,
      notice(),
      String(version),
      ...Object.entries(fields).flat(),
    ])
  }

  /** Reports refusals, which are retried later. The store link reports connection errors. */
  async #reportRefusal(work: () => Promise<void>): Promise<void> {
    try {
      await work()
    } catch (error) {
      if (error instanceof StoreRefusal) this.#options.refused(error.message)
    }
  }
}

function fieldsOf(reply: unknown): Record<string, string> {
  const flat = Array.isArray(reply) ? reply.map(String) : []
  return Object.fromEntries(flat.flatMap((name, at) => (at % 2 === 0 ? [[name, flat[at + 1] ?? '']] : [])))
}

/** 0 if it is not a version of ours. `nowMs`: the store's clock, as in the scripts. */
function versionOf(text: unknown, nowMs: number): number {
  const version = Number(text ?? 0)
  return Number.isSafeInteger(version) && version > 0 && version <= nowMs + MAX_AHEAD_MS ? version : 0
}

/** Reply of TIME: seconds and microseconds. */
function msOf(reply: unknown): number {
  const [seconds, micros] = Array.isArray(reply) ? reply.map(Number) : []
  return Math.floor((seconds ?? NaN) * 1000 + (micros ?? NaN) / 1000)
}
