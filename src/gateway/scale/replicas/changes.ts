/**
 * What operators change while gateways run, the same on all replicas: policy, τ, artifact, re-fits, drained workers. It is one hash in the
 * store, a field for each thing. A change sets its fields and the version in one step, so the store puts changes in one order, the last
 * one to a field stands, and two at once lose nothing. Replicas read the whole hash and make themselves like it, whatever they missed.
 *
 * Versions are the store's clock, and always more than the last: a store that has lost its data gets it back from a replica that knows it,
 * and what was changed since then is still newer.
 */
import { StoreRefusal } from './store-session.ts'

export type Fields = Readonly<Record<string, string>>
type Ask = (command: readonly (string | Buffer)[]) => Promise<unknown>

export interface ChangesOptions {
  readonly key: string
  readonly channel: string
  /** So long changes outlive the last replica. */
  readonly keptMs: number
  readonly ask: Ask
  /** What is published with a change. */
  readonly notice: () => Buffer
  /** Makes this gateway like the fields: those of the store, and over them what was changed here and is not there yet. Never rejects. */
  readonly apply: (fields: Fields) => Promise<void>
  /** The store refuses, or what is there is not ours. */
  readonly refused: (why: string) => void
}

const VERSION = 'version'
/** A version beyond the store's clock by more is nobody's that we know: it counts as none, here and there. */
const MOST_AHEAD_MS = 86_400_000
const LAST = `local t = redis.call('TIME'); local now = t[1] * 1000 + math.floor(t[2] / 1000)
local last = tonumber(redis.call('HGET', KEYS[1], '${VERSION}') or '') or 0; if not (last > 0 and last <= now + ${MOST_AHEAD_MS}) then last = 0 end`
const PUT = `for i = 5, #ARGV, 2 do
if ARGV[i + 1] == '' then redis.call('HDEL', KEYS[1], ARGV[i]) else redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end end
redis.call('HSET', KEYS[1], '${VERSION}', string.format('%.0f', version))
redis.call('PEXPIRE', KEYS[1], ARGV[1]); redis.call('PUBLISH', ARGV[2], ARGV[3]); return string.format('%.0f', version)`
/** Newer than what is there, and than what this replica has seen there. */
const WRITE = `${LAST}; local version = math.max(last + 1, now, tonumber(ARGV[4]) + 1); ${PUT}`
/** Only over what is older. */
const RESTORE = `${LAST}; local version = tonumber(ARGV[4]); if last >= version then return string.format('%.0f', last) end
redis.call('DEL', KEYS[1]); ${PUT}`

export class SharedChanges {
  readonly #options: ChangesOptions
  #version = 0
  #known: Fields = {}
  /** Changed here and not in the store yet. */
  #pending = new Map<string, string>()
  #running = false
  #again = false

  constructor(options: ChangesOptions) {
    this.#options = options
  }

  get version(): number {
    return this.#version
  }

  /** Changes that the store has not taken yet. */
  get waiting(): number {
    return this.#pending.size
  }

  /** Has been done here; the others are told as soon as it can be. A field that is empty is taken away. */
  made(fields: Fields): void {
    this.claim(fields)
    this.sync()
  }

  /** Has been done here, and must not be undone by what is in the store; it is told later. */
  claim(fields: Fields): void {
    for (const [name, value] of Object.entries(fields)) this.#pending.set(name, value)
  }

  /** Reads, writes and applies; once more when asked meanwhile. */
  sync(): void {
    this.#again = true
    if (!this.#running) void this.#run()
  }

  /** A worker has come that may be drained, or something did not work the first time. */
  async reapply(): Promise<void> {
    if (this.#version > 0) await this.#options.apply(this.#wanted())
  }

  /** Now and then: keeps the hash, and sees whether anything was missed. */
  async renew(): Promise<void> {
    const { key, keptMs, ask } = this.#options
    await this.#asking(async () => {
      const version = await ask(['HGET', key, VERSION])
      if (version !== null) await ask(['PEXPIRE', key, String(keptMs)])
      if (Number(version ?? 0) !== this.#version || this.#pending.size > 0) this.sync()
    })
  }

  async #run(): Promise<void> {
    this.#running = true
    while (this.#again) {
      this.#again = false
      await this.#asking(() => this.#once())
    }
    this.#running = false
  }

  async #once(): Promise<void> {
    const { key, ask, apply } = this.#options
    const look = async () => {
      const fields = fieldsOf(await ask(['HGETALL', key]))
      return { fields, version: versionOf(fields[VERSION], msOf(await ask(['TIME']))) }
    }
    let stored = await look()
    if (stored.version < this.#version) {
      // A store that takes nothing can still be read.
      await this.#asking(async () => void (await this.#script(RESTORE, this.#known, this.#version)))
      stored = await look()
    }
    if (this.#pending.size > 0) {
      await this.#asking(() => this.#write())
      stored = await look()
    }
    if (stored.version <= this.#version) return
    const { [VERSION]: _, ...fields } = stored.fields
    this.#version = stored.version
    this.#known = fields
    await apply(this.#wanted())
  }

  async #write(): Promise<void> {
    const pending = new Map(this.#pending)
    await this.#script(WRITE, Object.fromEntries(pending), this.#version)
    for (const [name, value] of pending) if (this.#pending.get(name) === value) this.#pending.delete(name)
  }

  #wanted(): Fields {
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

  /** What goes wrong with the connection its owner says; what the store refuses is said here, and tried again later. */
  async #asking(work: () => Promise<void>): Promise<void> {
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

/** Somebody else's is none. `nowMs` is the store's, as the scripts have it. */
function versionOf(text: unknown, nowMs: number): number {
  const version = Number(text ?? 0)
  return Number.isSafeInteger(version) && version > 0 && version <= nowMs + MOST_AHEAD_MS ? version : 0
}

/** What TIME answers: seconds, and millionths. */
function msOf(reply: unknown): number {
  const [seconds, micros] = Array.isArray(reply) ? reply.map(Number) : []
  return Math.floor((seconds ?? NaN) * 1000 + (micros ?? NaN) / 1000)
}
