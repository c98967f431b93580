/**
 * Traces as they would be under other conditions, made from a recorded one: the same readers, other rows or
 * other experts. For studies of artifacts that do not match the traffic.
 */
import { shuffled } from '../math/pairs.ts'
import { createRandom, type Random } from '../math/random.ts'
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
  const numbers = permutations(trace, createRandom(seed))
  return renumbered(trace, () => numbers)
}

/**
 * The trace of requests that have nothing in common: the experts of each are permuted on their own. Clusters
 * are random then, and what a neighbour decodes with says nothing, though it looks as certain as before.
 */
export function unrelatedRequests(trace: Trace, seed: number): Trace {
  const random = createRandom(seed)
  return renumbered(trace, request => permutations(trace, random.fork(request)))
}

/** [layers][experts] the new number of each expert. */
type Numbers = readonly Uint32Array[]

function permutations({ layers, experts }: Trace, random: Random): Numbers {
  return Array.from({ length: layers }, () => shuffled(experts, random))
}

/** The trace with other numbers for the experts of each request. */
function renumbered(trace: Trace, numbersOf: (request: number) => Numbers): Trace {
  const { layers, experts, topK, maxSteps } = trace
  /** Values by layer and expert, of the requests from `first` on. */
  const cells = async <T extends Values>(values: Promise<T>, first = 0): Promise<T> => {
    const all = await values
    const moved = emptyLike(all, all.length)
    for (let from = 0, request = first; from < all.length; from += layers * experts, request++)
      numbersOf(request).forEach((numberOf, layer) => {
        const base = from + layer * experts
        for (let expert = 0; expert < experts; expert++) moved[base + numberOf[expert]!] = all[base + expert]!
      })
    return moved
  }
  return {
    ...trace,
    prefillCounts: (from, to) => cells(trace.prefillCounts(from, to), from),
    prefillRecent: (from, to) => cells(trace.prefillRecent(from, to), from),
    gateProb: (from, to) => cells(trace.gateProb(from, to), from),
    gateLogit: (from, to) => cells(trace.gateLogit(from, to), from),
    decodeCounts: (from, to) => cells(trace.decodeCounts(from, to), from),
    decodeExpertIds: async (from = 0, to) => {
      const ids = (await trace.decodeExpertIds(from, to)).slice()
      const perRequest = maxSteps * layers * topK
      for (let row = 0; row * perRequest < ids.length; row++) {
        const numbers = numbersOf(from + row)
        for (let at = row * perRequest; at < (row + 1) * perRequest; at++)
          ids[at] = numbers[Math.floor(at / topK) % layers]![ids[at]!]!
      }
      return ids
    },
  }
}

type Values = Uint8Array | Uint16Array | Uint32Array | Float32Array

function emptyLike<T extends Values>(values: T, length: number): T {
  return new (values.constructor as new (length: number) => T)(length)
}
