/**
 * What replicas say to each other, as bytes. Loads are always whole: every message stands for itself, and one that was lost is mended by the
 * next. Rows of `union` are large, so that only those come which have changed; a sequence number shows the reader that it has missed some.
 */
import { createHash } from 'node:crypto'
import type { Role } from '../../../cluster/worker.ts'
import { ByteReader, ByteWriter, Malformed } from './bytes.ts'

/** 48 bits of a hash of role and name: names are long, and said two hundred times a second. */
export type WorkerKey = number

export interface LoadEntry {
  readonly key: WorkerKey
  readonly inflight: number
  readonly tokens: number
}

export interface RowEntry {
  readonly key: WorkerKey
  /** As rows.ts packs it. */
  readonly packed: Buffer
}

export interface Sender {
  readonly id: string
  /** Another one under the same name is another process. */
  readonly boot: number
}

/** What it has in flight. Lives for `leaseMs` from when it is heard. */
export interface StateMessage {
  readonly kind: 'state'
  readonly from: Sender
  /** One more than that of the state before. */
  readonly seq: number
  readonly leaseMs: number
  readonly loads: readonly LoadEntry[]
  /** 0: it tells of no rows. */
  readonly cells: number
  /** These are all the rows it has; others are zeros. */
  readonly whole: boolean
  readonly rows: readonly RowEntry[]
}

export type Message =
  | StateMessage
  /** Wants whole rows of one replica, or of all. */
  | { readonly kind: 'ask'; readonly from: Sender; readonly of: string }
  /** Stops, and has nothing in flight any more. */
  | { readonly kind: 'leave'; readonly from: Sender }
  /** The shared changes in the store are others now. */
  | { readonly kind: 'changed'; readonly from: Sender }

const KINDS = ['state', 'ask', 'leave', 'changed'] as const
const MAGIC = 0xe1
const VERSION = 1
const MOST_NAME = 128
const MOST_WORKERS = 16_384
export const MOST_CELLS = 1 << 20
/** As the settings allow it: one that is longer would keep the dead alive. */
export const MOST_LEASE_MS = 60_000

const keys = new Map<string, WorkerKey>()
/** Workers come and go; their keys are made anew when they come again. */
const MOST_KEYS = 65_536

export function workerKey(role: Role, id: string): WorkerKey {
  const name = `${role}/${id}`
  let key = keys.get(name)
  if (key !== undefined) return key
  if (keys.size >= MOST_KEYS) keys.clear()
  key = createHash('sha256').update(name).digest().readUIntLE(0, 6)
  keys.set(name, key)
  return key
}

export function encode(message: Message): Buffer {
  const writer = new ByteWriter()
  writer.byte(MAGIC)
  writer.byte(VERSION)
  writer.byte(KINDS.indexOf(message.kind))
  writer.text(message.from.id)
  writer.fixed(message.from.boot, 4)
  if (message.kind === 'ask') writer.text(message.of)
  if (message.kind !== 'state') return writer.done()
  writer.whole(message.seq)
  writer.whole(message.leaseMs)
  writer.whole(message.loads.length)
  for (const { key, inflight, tokens } of message.loads) {
    writer.fixed(key, 6)
    writer.whole(inflight)
    writer.whole(tokens)
  }
  writer.whole(message.cells)
  writer.byte(message.whole ? 1 : 0)
  writer.whole(message.rows.length)
  for (const { key, packed } of message.rows) {
    writer.fixed(key, 6)
    writer.block(packed)
  }
  return writer.done()
}

/** `foreign`: somebody else's, or of another version of ours; `malformed`: ours, and broken. */
export function decode(bytes: Buffer): Message | 'foreign' | 'malformed' {
  if (bytes.length < 3 || bytes[0] !== MAGIC || bytes[1] !== VERSION) return 'foreign'
  try {
    return read(new ByteReader(bytes.subarray(2)))
  } catch (error) {
    if (error instanceof Malformed) return 'malformed'
    throw error
  }
}

function read(reader: ByteReader): Message {
  const kind = KINDS[reader.byte()]
  if (kind === undefined) throw new Malformed('no such kind')
  const from: Sender = { id: reader.text(MOST_NAME), boot: reader.fixed(4) }
  if (from.id === '') throw new Malformed('nobody sent it')
  const message =
    kind === 'state'
      ? stateOf(reader, from)
      : kind === 'ask'
        ? { kind, from, of: reader.text(MOST_NAME) }
        : { kind, from }
  reader.end()
  return message
}

function stateOf(reader: ByteReader, from: Sender): StateMessage {
  const seq = reader.whole()
  const leaseMs = reader.whole(MOST_LEASE_MS)
  const loads = listOf(reader, () => ({
    key: reader.fixed(6),
    inflight: reader.whole(2 ** 31),
    tokens: reader.whole(2 ** 48),
  }))
  const cells = reader.whole(MOST_CELLS)
  const whole = reader.byte() === 1
  const rows = listOf(reader, () => ({ key: reader.fixed(6), packed: reader.block(2 * MOST_CELLS) }))
  return { kind: 'state', from, seq, leaseMs, loads, cells, whole, rows }
}

function listOf<T extends { readonly key: WorkerKey }>(reader: ByteReader, item: () => T): T[] {
  const items = Array.from({ length: reader.whole(MOST_WORKERS) }, item)
  if (new Set(items.map(({ key }) => key)).size !== items.length)
    throw new Malformed('a worker is there twice')
  return items
}
