/** An embedded cluster for fuzzing: workers and gateway as processes, with one spare decode worker. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { readSamples } from '../../../src/cluster/metrics-text.ts'
import {
  polled,
  type RunningProcess,
  startGatewayProcess,
  startWorkerProcess,
  type WorkerProcess,
} from '../../worker/processes.ts'

/** Responses are short and as fast as possible: only the API is tested. */
const WORKER = ['--speed', 'max', '--max-model-len', '256']
export const KEY = 'key-of-clients'
export const TOKEN = 'token-of-operators'
/** Workers that the run needs, and one that the fuzzer may drain and remove. */
export const SERVING = ['p0', 'd0', 'd1']
export const SPARE = 'spare'

export interface FuzzedCluster {
  readonly gateway: RunningProcess
  readonly workers: readonly WorkerProcess[]
  /** Lines of the gateway’s log above warning level, or that are not log lines. */
  troubles(): string[]
  memoryBytes(): Promise<number>
  /**
   * Values that have not returned to their initial state once the cluster is idle; empty if there are none.
   */
  leftovers(): Promise<string[]>
}

export async function startFuzzedCluster(
  folder: string,
  withSecrets: boolean,
  more: readonly string[] = [],
): Promise<FuzzedCluster> {
  const roles = ['prefill', 'decode', 'decode', 'decode']
  const workers = await Promise.all(roles.map(role => startWorkerProcess('--role', role, ...WORKER)))
  const addresses = [...SERVING, SPARE].flatMap((id, at) => [`--${roles[at]!}`, `${id}=${workers[at]!.url}`])
  const [keys, token] = [join(folder, 'keys'), join(folder, 'token')]
  await Promise.all([writeFile(keys, `${KEY}\n`), writeFile(token, `${TOKEN}\n`)])
  const secrets = withSecrets ? ['--api-key-file', keys, '--admin-token-file', token] : []
  const gateway = await startGatewayProcess([...addresses, '--json-log', ...secrets, ...more])
  const ready = async () =>
    (await (await fetch(`${gateway.url}/ready`)).json()) as { prefill: number; decode: number }
  await polled(ready, ({ prefill, decode }) => prefill === 1 && decode === 3, 'all workers ready')
  const samples = async (...names: string[]) =>
    readSamples(await (await fetch(`${gateway.url}/metrics`)).text(), new Set(names))
  return {
    gateway,
    workers,
    troubles: () =>
      gateway
        .said()
        .split('\n')
        .filter(line => line !== '' && levelOf(line) > WARN),
    memoryBytes: async () => (await samples('process_resident_memory_bytes'))[0]!.value,
    async leftovers() {
      const load = () =>
        samples(
          'eldr_worker_inflight',
          'eldr_worker_inflight_tokens',
          'eldr_running_requests',
          'eldr_queue_length',
          'eldr_ticket_leaks_total',
        )
      const held = await polled(load, found => found.every(({ value }) => value === 0), 'no load')
      if (held.length < 4) throw new Error(`metrics are missing: ${JSON.stringify(held)}`)
      return (await Promise.all(workers.map(worker => worker.leftovers()))).flat()
    },
  }
}

const WARN = 40

/** A line that is not a log line, such as a stack trace, counts as the worst. */
function levelOf(line: string): number {
  try {
    return (JSON.parse(line) as { level: number }).level
  } catch {
    return Infinity
  }
}
