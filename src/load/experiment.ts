/**
 * The client of a switchback experiment: switches a gateway's policy slot by slot and reads what the gateway
 * measured. The gateway restores the policy when this client ends the experiment or stops renewing its lease.
 */
import { EldrError } from '../errors.ts'
import { createRandom } from '../math/random.ts'
import { slotOrder } from '../math/switchback.ts'
import type { MeasuredSlot } from '../sim/switchback-analysis.ts'
import { addressOf, fetchText } from './endpoint.ts'
import type { AdminAccess } from './gateway-cluster.ts'

export interface ExperimentOptions {
  readonly gateway: AdminAccess
  /** `eldr`, or `eldr@0.2` with a τ. The first is the base that the others are compared with. */
  readonly policies: readonly string[]
  readonly slotMs: number
  readonly washoutMs: number
  /** A multiple of the number of policies. */
  readonly slots: number
  readonly seed: number
  readonly leaseMs?: number
  /** Rejects when the wait is over or the experiment is stopped. */
  readonly stop?: AbortSignal
  readonly onProgress?: (now: ExperimentProgress) => void
}

export interface ExperimentProgress {
  /** From 1. */
  readonly slot: number
  readonly slots: number
  readonly policy: string
  readonly slotMs: number
  readonly leftMs: number
  readonly last: MeasuredSlot | undefined
}

const LEASE_MS = 10_000
/** Of the lease: two renewals may be lost. */
const RENEWALS = 4
const PROGRESS_MS = 1_000

interface View {
  readonly id: string
  readonly finished?: Omit<MeasuredSlot, 'policy'>
}

export interface ExperimentRun {
  /** Complete slots in the order they ran. */
  readonly slots: readonly MeasuredSlot[]
  /** Why it ended early. */
  readonly failure?: unknown
}

/** Policies by their names in results: two equal ones are told apart by `#2`. */
export const treatmentNames = (policies: readonly string[]): string[] =>
  policies.map((name, at) => (policies.indexOf(name) === at ? name : `${name}#${at + 1}`))

/** Rejects if not even one slot is complete. */
export async function runExperiment(options: ExperimentOptions): Promise<ExperimentRun> {
  const { policies, slotMs, washoutMs, slots, seed, stop, onProgress, leaseMs = LEASE_MS } = options
  const call = adminCall(options.gateway)
  const treatments = treatmentNames(policies).map((name, at) => ({ name, policy: policies[at]! }))
  const order = slotOrder(treatments, slots / policies.length, createRandom(seed))
  const names = policies.map(policy => partsOf(policy).policy)
  const { id } = await call('POST', '', { policies: [...new Set(names)], leaseMs })
  const measured: MeasuredSlot[] = []
  const take = ({ finished }: View) => {
    if (finished !== undefined) measured.push({ ...finished, policy: order[measured.length]!.name })
  }
  let ended = false
  try {
    for (const [at, { name, policy }] of order.entries()) {
      // With its number, a switch whose response was lost can be repeated.
      take(await insist({ ...partsOf(policy), washoutMs, slot: at + 1 }))
      await slotEnds(at, name)
    }
    ended = true
    take(await call('DELETE', `/${id}`))
  } catch (failure) {
    if (measured.length === 0) throw failure
    return { slots: measured, failure }
  } finally {
    // Best effort: the lease expires anyway.
    if (!ended) await call('DELETE', `/${id}`).catch(() => undefined)
  }
  return { slots: measured }

  /** Renews the lease until the slot is over. */
  async function slotEnds(at: number, policy: string): Promise<void> {
    const untilMs = performance.now() + slotMs
    let renewedMs = performance.now()
    for (let leftMs = slotMs; leftMs > 0; leftMs = untilMs - performance.now()) {
      onProgress?.({ slot: at + 1, slots, policy, slotMs, leftMs, last: measured.at(-1) })
      await pause(Math.min(leftMs, PROGRESS_MS, leaseMs / RENEWALS), stop)
      if (performance.now() - renewedMs < leaseMs / RENEWALS) continue
      await insist()
      renewedMs = performance.now()
    }
  }

  /** Renews the lease or switches. A gateway that is busy or replaces its owner process may miss it. */
  async function insist(slot?: object): Promise<View> {
    const untilMs = performance.now() + leaseMs / 2
    for (;;) {
      try {
        return await call('PUT', `/${id}`, slot)
      } catch (error) {
        if (!isPassing(error) || performance.now() > untilMs) throw error
        await pause(leaseMs / RENEWALS / 4, stop)
      }
    }
  }
}

/** `cause` of the error for a request that the gateway refused: it would refuse it again. */
const REFUSED = 'refused'
const isPassing = (error: unknown): boolean =>
  error instanceof EldrError &&
  (error.code === 'ELDR_ENDPOINT_UNREACHABLE' ||
    (error.code === 'ELDR_ENDPOINT_FAILED' && error.detail.cause !== REFUSED))

/** `eldr@0.2` → policy eldr, τ 0.2. Undefined if τ is not a number from 0 to `maxTau`. */
export function policyParts(
  name: string,
  maxTau = Infinity,
): { readonly policy: string; readonly tau?: number } | undefined {
  const [, policy, tau] = /^([^@]+)(?:@(\d+(?:\.\d+)?))?$/.exec(name) ?? []
  if (policy === undefined || Number(tau ?? 0) > maxTau) return undefined
  return { policy, tau: tau === undefined ? undefined : Number(tau) }
}

const partsOf = (name: string) => policyParts(name)!

function adminCall({ url, adminToken, insecure }: AdminAccess) {
  const { origin, root } = addressOf(url)
  const admin = `${origin}${root.replace(/\/v\d+$/, '')}/eldr/experiment`
  return async (method: 'POST' | 'PUT' | 'DELETE', path: string, body?: object): Promise<View> => {
    const { status, text } = await fetchText({ apiKey: adminToken, insecure }, method, admin + path, body)
    if (status === 200 || status === 201) return JSON.parse(text) as View
    if (text.includes('ELDR_EXPERIMENT_UNKNOWN'))
      throw new EldrError('ELDR_EXPERIMENT_ENDED', {
        found: `no experiment with the id of this one at ${admin}`,
        expected: 'the experiment that this command started',
      })
    throw new EldrError('ELDR_ENDPOINT_FAILED', {
      found: `status ${status} from ${method} ${admin}${path}: ${messageIn(text)}`,
      expected: 'the admin API of `eldr serve`',
      todo:
        status === 401 || status === 403
          ? 'Pass the gateway’s token with --admin-token or ELDR_ADMIN_TOKEN.'
          : undefined,
      cause: status < 500 && status !== 429 ? REFUSED : undefined,
    })
  }
}

function messageIn(text: string): string {
  try {
    return (JSON.parse(text) as { error: { message: string } }).error.message
  } catch {
    return text.slice(0, 300)
  }
}

function pause(ms: number, stop: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const stopped = () => {
      clearTimeout(timer)
      reject(stop!.reason as Error)
    }
    if (stop?.aborted) return reject(stop.reason as Error)
    const timer = setTimeout(() => {
      stop?.removeEventListener('abort', stopped)
      resolve()
    }, ms)
    stop?.addEventListener('abort', stopped, { once: true })
  })
}
