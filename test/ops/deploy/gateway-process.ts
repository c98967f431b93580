/** A gateway as a container starts it: followed by its log, stopped by SIGTERM. */
import { type ChildProcess, spawn, type SpawnOptions } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'

export interface GatewayProcess {
  readonly child: ChildProcess
  readonly url: string
  /** Asks it to end, and gives its exit code. */
  stop(): Promise<number | null>
}

/** Resolves when it listens; rejects with what it said when it ends before. */
export async function startGatewayProcess(
  command: string,
  args: readonly string[],
  options: SpawnOptions,
): Promise<GatewayProcess> {
  const child = spawn(command, args, { ...options, stdio: ['ignore', 'pipe', 'pipe'] })
  const exited = once(child, 'exit').then(([code]) => code as number | null)
  let said = ''
  const url = await new Promise<string>((resolve, reject) => {
    child.once('error', reject)
    void exited.then(code => reject(new Error(`ended with ${code}:\n${said}`)))
    for (const input of [child.stdout!, child.stderr!])
      createInterface({ input }).on('line', line => {
        said += `${line}\n`
        const found = /listening on (https?:\/\/[^"\s]+)/.exec(line)?.[1]
        if (found !== undefined) resolve(found.replace('0.0.0.0', '127.0.0.1'))
      })
  })
  const stop = () => {
    child.kill('SIGTERM')
    return exited
  }
  return { child, url, stop }
}
