/**
 * Messages between replicas, and their bytes. Every message has all loads, so the next one makes up for one
 * that was lost. Rows of `union` are large, so only changed ones are sent; a sequence number shows the reader
 * that it missed some.
 */
import { createHash } from 'node:crypto'
import type { Role } from '../../../cluster/worker.ts'
import { ByteReader, ByteWriter, Malformed } from './bytes.ts'

/** 48 bits of a hash of role and id: ids are long, and sent up to 200 times per second. */
export type WorkerKey = number

export interface LoadEntry {
  readonly key: WorkerKey
  readonly inflight: number
  readonly tokens: number
}

export interface RowEntry {
  readonly key: WorkerKey
  /** Packed by rows.ts. */
  readonly packed: Buffer
}

export interface Sender {
  readonly id: string
  /** Random number of the process: two processes may have the same id. */
  readonly boot: number
}

/** The requests in flight of a replica. Valid for `leaseMs` from its receipt. */
export interface StateMessage {
  readonly kind: 'state'
  readonly from: Sender
  /** Increases by one with each state. */
  readonly seq: number
  readonly leaseMs: number
  readonly loads: readonly LoadEntry[]
  /** Cells of a row; 0 without rows. */
  readonly cells: number
  /** True if these are all rows; others are zero. */
  readonly whole: boolean
  readonly rows: readonly RowEntry[]
}

export type Message =
  | StateMessage
  /** Asks for all rows of one replica, or of all if `of` is empty. */
  | { readonly kind: 'ask'; readonly from: Sender; readonly of: string }
  /** The replica stops and has nothing in flight. */
  | { readonly kind: 'leave'; readonly from: Sender }
  /** The shared changes in the store have changed. */
  | { readonly kind: 'changed'; readonly from: Sender }

/** `foreign`: from another application or another version; `malformed`: ours, but invalid. */
export type Decoded =
  | { readonly kind: 'ok'; readonly message: Message }
  | { readonly kind: 'foreign' | 'malformed' }

const KINDS = ['state', 'ask', 'leave', 'changed'] as const
const MAGIC = 0xe1
const VERSION = 1
const MAX_ID_BYTES = 128
const MAX_WORKERS = 16_384
export const MAX_CELLS = 1 << 20
/** Limit of the setting: a longer lease would keep a dead replica's load. */
export const MAX_LEASE_MS = 60_000

const keys = new Map<string, WorkerKey>()
/** Bounds the cache; keys can be computed again. */
const MAX_KEYS = 65_536

export function workerKey(role: Role, id: string): WorkerKey {
  const name = `${role}/${id}`
  let key = keys.get(name)
  if (key !== undefined) return key
  if (keys.size >= MAX_KEYS) keys.clear()
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
  writer.varint(message.seq)
  writer.varint(message.leaseMs)
  writer.varint(message.loads.length)
  for (const { key, inflight, tokens } of message.loads) {
    writer.fixed(key, 6)
    writer.varint(inflight)
    writer.varint(tokens)
  }
  writer.varint(message.cells)
  writer.byte(message.whole ? 1 : 0)
  writer.varint(message.rows.length)
  for (const { key, packed } of message.rows) {
    writer.fixed(key, 6)
    writer.block(packed)
  }
  return writer.done()
}

export function decode(bytes: Buffer): Decoded {
  if (bytes.length < 3 || bytes[0] !== MAGIC || bytes[1] !== VERSION) return { kind: 'foreign' }
  try {
    return { kind: 'ok', message: read(new ByteReader(bytes.subarray(2))) }
  } catch (error) {
    if (error instanceof Malformed) return { kind: 'malformed' }
    throw error
  }
}

function read(reader: ByteReader): Message {
  const kind = KINDS[reader.byte()]
  if (kind === undefined) throw new Malformed('unknown kind')
  const from: Sender = { id: reader.text(MAX_ID_BYTES), boot: reader.fixed(4) }
  if (from.id === '') throw new Malformed('no sender')
  const message =
    kind === 'state'
      ? stateOf(reader, from)
      : kind === 'ask'
        ? { kind, from, of: reader.text(MAX_ID_BYTES) }
        : { kind, from }
  reader.end()
  return message
}

function stateOf(reader: ByteReader, from: Sender): StateMessage {
  const seq = reader.varint()
  const leaseMs = reader.varint(MAX_LEASE_MS)
  const loads = listOf(reader, () => ({
    key: reader.fixed(6),
    inflight: reader.varint(2 ** 31),
    tokens: reader.varint(2 ** 48),
  }))
  const cells = reader.varint(MAX_CELLS)
  const whole = reader.byte() === 1
  const rows = listOf(reader, () => ({ key: reader.fixed(6), packed: reader.block(2 * MAX_CELLS) }))
  return { kind: 'state', from, seq, leaseMs, loads, cells, whole, rows }
}

function listOf<T extends { readonly key: WorkerKey }>(reader: ByteReader, item: () => T): T[] {
  const items = Array.from({ length: reader.varint(MAX_WORKERS) }, item)
  if (new Set(items.map(({ key }) => key)).size !== items.length) throw new Malformed('duplicate worker')
  return items
}
