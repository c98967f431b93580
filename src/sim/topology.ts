/**
 * Clusters as text: `8P16D` is 8 prefill and 16 decode workers, `16D` decode workers alone (requests arrive
 * with prefill done), `2P8D×EP4` (or xEP4) decode workers of 4 GPUs each that share the experts, `8D/4`
 * decode workers of which 4 share a GPU's bandwidth.
 */
import { EldrError } from '../errors.ts'
import { quoted } from '../trace/quoted.ts'

export interface Topology {
  /** 0: prefill is not simulated. */
  readonly prefill: number
  readonly decode: number
  /** Expert-parallel ranks of a decode worker; 1 is a worker of one GPU. */
  readonly ranks: number
  /** Decode workers that share a GPU: worker d is on GPU ⌊d/perDevice⌋ (default: 1). */
  readonly perDevice?: number
}

const MAX_WORKERS = 4_096
const MAX_RANKS = 512

export function parseTopology(text: string): Topology {
  const match = /^(?:(\d{1,5})P)?(\d{1,5})D(?:[×x]EP(\d{1,5})|\/(\d{1,5}))?$/i.exec(text.trim())
  if (match === null) throw wrong(text, 'such as 8P16D, 16D, 2P8D×EP4 or 8D/4')
  const [prefill, decode, ranks] = [Number(match[1] ?? 0), Number(match[2]), Number(match[3] ?? 1)]
  const perDevice = Number(match[4] ?? 1)
  if (match[1] !== undefined && prefill === 0)
    throw wrong(text, 'at least 1 prefill worker; without the P part prefill is not simulated')
  if (decode === 0 || ranks === 0) throw wrong(text, `at least 1 ${decode === 0 ? 'decode worker' : 'rank'}`)
  if (prefill > MAX_WORKERS || decode > MAX_WORKERS)
    throw wrong(text, `at most ${MAX_WORKERS} workers of a kind`)
  if (ranks > MAX_RANKS) throw wrong(text, `at most ${MAX_RANKS} ranks`)
  if (perDevice < 1 || perDevice > decode)
    throw wrong(text, `1 to ${decode} decode workers on a GPU, no more than there are`)
  return { prefill, decode, ranks, ...(perDevice > 1 && { perDevice }) }
}

export function topologyText({ prefill, decode, ranks, perDevice = 1 }: Topology): string {
  const shared = perDevice === 1 ? '' : `/${perDevice}`
  return `${prefill === 0 ? '' : `${prefill}P`}${decode}D${ranks === 1 ? '' : `×EP${ranks}`}${shared}`
}

/** GPUs of the cluster; a prefill worker has as many as a decode worker (paper §6: TP = EP for both). */
export function gpusOf({ prefill, decode, ranks, perDevice = 1 }: Topology): number {
  return (prefill + Math.ceil(decode / perDevice)) * ranks
}

/** Cost of a million output tokens, given the cluster's tokens per second and the price of a GPU-hour. */
export function costPerMillionTokens(
  topology: Topology,
  pricePerGpuHour: number,
  tokensPerSecond: number,
): number {
  return ((gpusOf(topology) * pricePerGpuHour) / 3600 / tokensPerSecond) * 1e6
}

function wrong(text: string, expected: string): EldrError {
  return new EldrError('ELDR_USAGE', {
    found: `topology ${quoted(text)}`,
    expected,
    todo: 'Name workers as in 8P16D.',
  })
}
