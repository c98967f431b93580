/** `eldr serve --replace` as an operator runs it, and new processes that fail in different ways. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { PROGRAM } from '../worker/processes.ts'
import type { ProcessCluster } from './process-cluster.ts'

export interface Ran {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

/** `fault`: a file that the new process loads first. */
export async function eldrReplace(
  { url, file }: Pick<ProcessCluster, 'url' | 'file'>,
  fault?: 'crash' | 'hang',
): Promise<Ran> {
  const module = new URL(`./successor-${fault}.mjs`, import.meta.url).href
  const nodeFlags = fault === undefined ? [] : ['--import', module]
  const port = url.slice(url.lastIndexOf(':') + 1)
  const child = spawn(
    process.execPath,
    [...nodeFlags, PROGRAM, 'serve', '--replace', '--config', file, '--port', port],
    { stdio: ['ignore', 'pipe', 'pipe'] },
  )
  let [stdout, stderr] = ['', '']
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text))
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text))
  const [code] = (await once(child, 'close')) as [number | null]
  return { code, stdout, stderr }
}
