/**
 * Traces as they would be under other conditions, made from a recorded one: the same readers, other rows or
 * other experts. For studies of artifacts that do not match the traffic.
 */
import { shuffled } from '../math/pairs.ts'
import { createRandom } from '../math/random.ts'
import type { Trace } from './trace.ts'

/** The trace without the requests of one domain, whose name is gone too. */
export async function withoutDomain(trace: Trace, name: string): Promise<Trace> {
  const domainOf = await trace.domain()
  const left = trace.domains.indexOf(name)
  if (domainOf === undefined || left < 0) throw new RangeError(`no domain ${name} in ${trace.path}`)
  const kept = Array.from(domainOf.keys()).filter(request => domainOf[request] !== left)
  const gateRows = kept.filter(request => request < trace.gateRows).length
  /** Rows `from` up to `to` of the kept requests, out of all rows of a tensor. */
  const pick = async <T extends Values>(all: Promise<T>, rows: number, from = 0, to = kept.length) => {
    const values = await all
    const width = values.length / rows
    const picked = emptyLike(values, (to - from) * width)
    kept
      .slice(from, to)
      .forEach((request, at) =>
        picked.set(values.subarray(request * width, (request + 1) * width), at * width),
      )
    return picked
  }
  const { requests } = trace
  return {
    ...trace,
    requests: kept.length,
    gateRows,
    domains: trace.domains.filter(other => other !== name),
    prefillCounts: (from, to) => pick(trace.prefillCounts(), requests, from, to),
    prefillRecent: (from, to) => pick(trace.prefillRecent(), requests, from, to),
    gateProb: (from, to = gateRows) => pick(trace.gateProb(), trace.gateRows, from, to),
    gateLogit: (from, to = gateRows) => pick(trace.gateLogit(), trace.gateRows, from, to),
    decodeCounts: (from, to) => pick(trace.decodeCounts(), requests, from, to),
    decodeExpertIds: (from, to) => pick(trace.decodeExpertIds(), requests, from, to),
    decodeSteps: () => pick(trace.decodeSteps(), requests),
    promptTokens: async () => {
      const tokens = await trace.promptTokens()
      return tokens && pick(Promise.resolve(tokens), requests)
    },
    domain: async () =>
      Uint8Array.from(kept, request => domainOf[request]! - Number(domainOf[request]! > left)),
  }
}

/**
 * The trace of a model with the same experts under other numbers: one permutation per layer, for prompts and
 * decode steps alike.
 */
export function shuffledExperts(trace: Trace, seed: number): Trace {
  const { layers, experts, topK } = trace
  const random = createRandom(seed)
  const numbers = Array.from({ length: layers }, () => shuffled(experts, random))
  const cells = async <T extends Values>(values: Promise<T>) => renumbered(await values, numbers)
  return {
    ...trace,
    prefillCounts: (from, to) => cells(trace.prefillCounts(from, to)),
    prefillRecent: (from, to) => cells(trace.prefillRecent(from, to)),
    gateProb: (from, to) => cells(trace.gateProb(from, to)),
    gateLogit: (from, to) => cells(trace.gateLogit(from, to)),
    decodeCounts: (from, to) => cells(trace.decodeCounts(from, to)),
    decodeExpertIds: async (from, to) => {
      const ids = await trace.decodeExpertIds(from, to)
      return ids.map((expert, at) => numbers[Math.floor(at / topK) % layers]![expert]!)
    },
  }
}

/**
 * The trace with prompts that tell nothing: the expert counts of each request's prompt are permuted on their
 * own, while the decode steps stay. Clusters are random then, and neighbours decode no more alike than any.
 */
export function randomPrompts(trace: Trace, seed: number): Trace {
  const { layers, experts } = trace
  const random = createRandom(seed)
  const cells = async <T extends Values>(values: Promise<T>, first = 0) => {
    const all = await values
    const made = emptyLike(all, all.length)
    const width = layers * experts
    for (let from = 0, request = first; from < all.length; from += width, request++) {
      const own = random.fork(request)
      const numbers = Array.from({ length: layers }, () => shuffled(experts, own))
      made.set(renumbered(all.subarray(from, from + width) as T, numbers), from)
    }
    return made
  }
  return {
    ...trace,
    prefillCounts: (from, to) => cells(trace.prefillCounts(from, to), from),
    prefillRecent: (from, to) => cells(trace.prefillRecent(from, to), from),
    gateProb: (from, to) => cells(trace.gateProb(from, to), from),
    gateLogit: (from, to) => cells(trace.gateLogit(from, to), from),
  }
}

type Values = Uint8Array | Uint16Array | Uint32Array | Float32Array

function emptyLike<T extends Values>(values: T, length: number): T {
  return new (values.constructor as new (length: number) => T)(length)
}

/** Values of [rows][layers][experts], each moved to the new number of its expert. */
function renumbered<T extends Values>(values: T, numbers: readonly Uint32Array[]): T {
  const [layers, experts] = [numbers.length, numbers[0]!.length]
  const moved = emptyLike(values, values.length)
  for (let at = 0; at < values.length; at += experts) {
    const numberOf = numbers[(at / experts) % layers]!
    for (let expert = 0; expert < experts; expert++) moved[at + numberOf[expert]!] = values[at + expert]!
  }
  return moved
}
