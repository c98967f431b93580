/**
 * 10,500 damaged traces, each written to disk, opened and read completely. Whatever the damage, the result is
 * the trace's values or an EldrError that names the file, in bounded time and memory. Seeded: a failure names
 * the number of its mutation, which reproduces it.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { EldrError } from '../src/errors.ts'
import { type Trace, type TracePurpose, withTrace } from '../src/trace/trace.ts'
import { bytesOf, rawFile, temporaryFolder, traceWith } from './trace-support.ts'

const MUTATIONS = 10_500
const MAX_GROWTH = 200e6 // bytes of resident memory, for files of about 1,400 bytes

const folder = temporaryFolder()
afterAll(folder.remove)

const good = await bytesOf(traceWith())
const headerLength = Number(good.readBigUInt64LE())
const header = good.subarray(8, 8 + headerLength).toString()
const data = good.subarray(8 + headerLength)

const NUMBERS = [
  '0',
  '1',
  '2',
  '3',
  '5',
  '-1',
  '1e3',
  '1.0',
  '255',
  '65536',
  '4294967296',
  '9007199254740991',
  '18446744073709551615',
  '1e400',
  'null',
  '[]',
]
const STRINGS = [
  '',
  '__proto__',
  '__metadata__',
  'constructor',
  'U8',
  'U16',
  'F16',
  'F64',
  'eldr.trace.v2',
  '-2',
  '3',
  '0',
  '1e9',
  '\\ud800',
  '\\u0000',
  '😀',
]
const LENGTHS = [
  0n,
  1n,
  2n,
  7n,
  100_000_000n,
  100_000_001n,
  2n ** 31n,
  2n ** 32n,
  2n ** 53n,
  2n ** 63n,
  2n ** 64n - 1n,
]

/** Every check that a file can fail, and success. */
const OUTCOMES = [
  'ELDR_FILE_BAD_HEADER',
  'ELDR_FILE_BAD_METADATA',
  'ELDR_FILE_NOT_SAFETENSORS',
  'ELDR_FILE_TRUNCATED',
  'ELDR_FILE_UNKNOWN_VERSION',
  'ELDR_FILE_WRONG_KIND',
  'ELDR_TENSOR_BAD_SHAPE',
  'ELDR_TENSOR_BAD_TYPE',
  'ELDR_TENSOR_BAD_VALUE',
  'ELDR_TENSOR_MISSING',
  'read',
]

type Random = (below: number) => number
type Mutation = (random: Random) => Buffer

/**
 * One kind of damage each; those that rewrite the header keep its length field right, so that the damage gets
 * past it.
 */
const mutations: Readonly<Record<string, Mutation>> = {
  'bytes flipped': random => flipped(good, random, 1 + random(8)),
  'header bytes flipped': random => rawFile(flipped(Buffer.from(header), random, 1 + random(2)), data),
  'data bytes flipped': random => rawFile(header, flipped(data, random, 1 + random(4))),
  truncated: random => good.subarray(0, random(good.length)),
  'bytes inserted': random => spliced(good, random(good.length), 0, noise(random, 1 + random(40))),
  'bytes removed': random => spliced(good, random(good.length), 1 + random(40)),
  'header text inserted': random =>
    rawFile(
      spliced(Buffer.from(header), random(headerLength), 0, Buffer.from(pick('{}[]",:\\ 09', random))),
      data,
    ),
  'header text removed': random =>
    rawFile(spliced(Buffer.from(header), random(headerLength), 1 + random(60)), data),
  'length field changed': random =>
    rawFile(header, data, random(2) === 0 ? pick(LENGTHS, random) : BigInt(random(2 * headerLength))),
  'number replaced': random => rawFile(replaceOne(/\d+/g, pick(NUMBERS, random), random), data),
  'string replaced': random => rawFile(replaceOne(/"[^"]*"/g, `"${pick(STRINGS, random)}"`, random), data),
  'string replaced by another of the header': random =>
    rawFile(replaceOne(/"[^"]*"/g, pick(header.match(/"[^"]*"/g)!, random), random), data),
  'two tensors renamed': random => rawFile(swapNames(random), data),
  'metadata number replaced': random =>
    rawFile(replaceOne(/(?<=")\d+(?=")/g, pick(NUMBERS, random), random), data),
  'tensor removed': random => rawFile(replaceOne(/,"\w+":\{"dtype[^}]*\}/g, '', random), data),
  'two of these': random =>
    flipped(mutations[pick(Object.keys(mutations).slice(0, -1), random)]!(random), random, 1),
}

describe('a damaged trace', () => {
  it('is either read or rejected with an ELDR error', async () => {
    const path = join(folder.path, 'damaged.safetensors')
    const names = Object.keys(mutations)
    const outcomes: Record<string, number> = {}
    const rssBefore = process.memoryUsage.rss()
    let rssPeak = rssBefore
    for (let i = 0; i < MUTATIONS; i++) {
      const name = names[i % names.length]!
      writeFileSync(path, mutations[name]!(randomFrom(i + 1)))
      const outcome = await readWhole(path).catch((error: unknown) => {
        if (error instanceof EldrError && error.message.includes(path)) return error.code
        throw new Error(`mutation ${i}, ${name}: ${String(error)}`, { cause: error })
      })
      outcomes[outcome] = (outcomes[outcome] ?? 0) + 1
      if (i % 100 === 0) rssPeak = Math.max(rssPeak, process.memoryUsage.rss())
    }
    expect(rssPeak - rssBefore).toBeLessThan(MAX_GROWTH)
    // The damage reached every check, not only the first.
    expect(Object.keys(outcomes).sort()).toEqual(OUTCOMES)
  }, 120_000)

  it('does not include the original', async () => {
    const path = join(folder.path, 'good.safetensors')
    writeFileSync(path, good)
    expect(await readWhole(path)).toBe('read')
  })
})

async function readWhole(path: string): Promise<string> {
  return withTrace(path, async trace => {
    const cells = trace.layers * trace.experts
    const all = [
      { values: await trace.prefillCounts(), rows: trace.requests },
      ...(can(trace, 'quality') ? [{ values: await trace.decodeCounts(), rows: trace.requests }] : []),
      ...(trace.has('prefill_recent') ? [{ values: await trace.prefillRecent(), rows: trace.requests }] : []),
      ...(can(trace, 'gate') ? [{ values: await trace.gateProb(), rows: trace.gateRows }] : []),
      ...(can(trace, 'gate') ? [{ values: await trace.gateLogit(), rows: trace.gateRows }] : []),
    ]
    if (can(trace, 'replay')) await trace.decodeExpertIds()
    await Promise.all([trace.promptTokens(), trace.domain(), trace.sha256()])
    return all.every(({ values, rows }) => values.length === rows * cells)
      ? 'read'
      : 'read with a wrong length'
  })
}

function can(trace: Trace, purpose: TracePurpose): boolean {
  return trace.missingFor(purpose).length === 0
}

/** mulberry32: integers from 0 to below − 1. */
function randomFrom(seed: number): Random {
  let state = Math.imul(seed, 0x9e3779b1)
  return below => {
    state = (state + 0x6d2b79f5) | 0
    let x = Math.imul(state ^ (state >>> 15), 1 | state)
    x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x
    return Math.floor((((x ^ (x >>> 14)) >>> 0) / 2 ** 32) * below)
  }
}

function pick<T>(from: ArrayLike<T>, random: Random): T {
  return from[random(from.length)]!
}

function noise(random: Random, length: number): Buffer {
  return Buffer.from(Array.from({ length }, () => random(256)))
}

function flipped(bytes: Buffer, random: Random, times: number): Buffer {
  const copy = Buffer.from(bytes)
  for (let i = 0; i < times && copy.length > 0; i++) copy[random(copy.length)] = random(256)
  return copy
}

function spliced(bytes: Buffer, at: number, remove: number, insert: Uint8Array = new Uint8Array(0)): Buffer {
  return Buffer.concat([bytes.subarray(0, at), insert, bytes.subarray(at + remove)])
}

/** The header with one of the pattern's matches replaced. */
function replaceOne(pattern: RegExp, by: string, random: Random): string {
  const { 0: match, index } = pick([...header.matchAll(pattern)], random)
  return header.slice(0, index) + by + header.slice(index + match.length)
}

/** The header with the names of two tensors swapped, which leaves it valid. */
function swapNames(random: Random): string {
  const names = [...header.matchAll(/"(\w+)":\{"dtype/g)].map(([, name]) => name!)
  const [a, b] = [pick(names, random), pick(names, random)]
  return header.replaceAll(`"${a}":`, '"\0":').replaceAll(`"${b}":`, `"${a}":`).replaceAll('"\0":', `"${b}":`)
}
