/**
 * Runs a page as a reader would: its commands in order, in one shell, in a folder that looks like a clone. Ports are changed to free ones,
 * so that pages run beside whatever else is on the machine; what was started in the background is stopped at the end.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer, type AddressInfo, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fateOf, isShell, SET_UP, type Block, type Page } from './markdown.ts'
import { missingLines } from './output.ts'

/** What a clone has that commands on pages use. */
const OF_THE_CLONE = [
  'data',
  'dist',
  'docs',
  'models',
  'node_modules',
  'package.json',
  'profiles',
  'python',
  'scripts',
]
/** Where `eldr up`, `serve` and `worker` listen unless told. */
const USUAL_PORT = 8000
/** After SIGTERM, before SIGKILL. */
const GRACE_MS = 10_000
const SHOWN_LINES = 40

export interface PageRun {
  readonly name: string
  readonly page: Page
  readonly root: string
  readonly timeoutMs: number
  /** Hears what each block that was run has printed: for who writes a page and wants to show it. */
  readonly onPrinted?: (block: Block, printed: string) => void
}

/** Resolves when all that the page says held; otherwise fails with the line of the page and what was printed. */
export async function runPage({ name, page, root, timeoutMs, onPrinted }: PageRun): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'eldr-docs-'))
  try {
    const [work, bin] = [join(folder, 'eldr'), join(folder, 'bin')]
    for (const path of [work, bin]) mkdirSync(path)
    for (const entry of OF_THE_CLONE) symlinkSync(join(root, entry), join(work, entry))
    const ports = await freePorts(portsOf(page))
    writePrograms(bin, root, ports.get(USUAL_PORT)!)
    const log = (block: Block) => join(folder, `${block.line}.log`)
    const script = join(folder, 'page.sh')
    writeFileSync(script, scriptOf(page, log, ports))
    const progress = join(folder, 'progress')
    writeFileSync(progress, '')
    const failure = await runScript({ script, work, bin, progress, timeoutMs })
    const said = (block: Block) => renamed(read(log(block)), ports, true)
    if (onPrinted !== undefined)
      for (const block of page.blocks) if (fateOf(block)?.kind === 'run') onPrinted(block, said(block))
    if (failure !== undefined) {
      const begun = Number(read(progress).trim().split('\n').at(-1))
      const block = page.blocks.find(({ line }) => line === begun)
      throw new Error(
        `${name}:${begun}: ${failure}\n${block?.text ?? ''}\n--- printed:\n${block ? tailOf(said(block)) : 'nothing: the shell did not begin'}`,
      )
    }
    checkOutputs(name, page, said)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

function checkOutputs(name: string, page: Page, said: (block: Block) => string): void {
  let last: Block | undefined
  for (const block of page.blocks) {
    const fate = fateOf(block)
    if (fate?.kind === 'run') last = block
    if (fate?.kind !== 'expect') continue
    if (last === undefined)
      throw new Error(`${name}:${block.line}: expected of what? No block before it is run`)
    const missing = missingLines(block.text, said(last))
    if (missing.length > 0)
      throw new Error(
        `${name}:${block.line}: not printed:\n${missing.join('\n')}\n--- printed:\n${tailOf(said(last))}`,
      )
  }
}

/** One script, so that variables and background jobs live on from block to block. Each block's output has a file of its own. */
function scriptOf(page: Page, log: (block: Block) => string, ports: ReadonlyMap<number, number>): string {
  const parts = ['set -eo pipefail']
  for (const block of page.blocks) {
    const fate = fateOf(block)
    const text = renamed(block.text, ports, false)
    if (fate?.kind === 'file') parts.push(`cat > ${quoted(fate.name)} <<'END_OF_FILE'\n${text}\nEND_OF_FILE`)
    if (fate?.kind !== 'run') continue
    parts.push(`echo ${block.line} >> "$PROGRESS"`, `exec > ${quoted(log(block))} 2>&1`)
    if (fate.until !== undefined)
      parts.push(
        `{\n${text}\n} &`,
        `until grep -qF -- ${quoted(renamed(fate.until, ports, false))} ${quoted(log(block))}; do kill -0 $! || exit 1; sleep 0.1; done`,
      )
    else if (fate.failsWith === undefined) parts.push(text)
    else
      parts.push(
        'set +e',
        `( set -e\n${text}\n)`,
        `status=$?`,
        'set -e',
        `[ "$status" = ${fate.failsWith} ] || { echo "status $status"; exit 1; }`,
      )
  }
  return `${parts.join('\n')}\n`
}

interface ScriptRun {
  readonly script: string
  readonly work: string
  readonly bin: string
  readonly progress: string
  readonly timeoutMs: number
}

async function runScript({ script, work, bin, progress, timeoutMs }: ScriptRun): Promise<string | undefined> {
  const env = Object.fromEntries(
    Object.entries(process.env).filter(([key]) => !/^(ELDR_|VITEST|NODE_OPTIONS|npm_|CI$)/.test(key)),
  )
  const shell = spawn('bash', [script], {
    cwd: work,
    env: { ...env, PATH: `${bin}:${process.env['PATH']}`, PROGRESS: progress, NO_COLOR: '1' },
    stdio: ['ignore', 'ignore', 'ignore'],
    detached: true, // a process group of its own, so that all it started can be stopped
  })
  const timer = AbortSignal.timeout(timeoutMs)
  try {
    const [status] = (await once(shell, 'exit', { signal: timer })) as [number | null]
    return status === 0 ? undefined : `ended with status ${status}`
  } catch (error) {
    if (timer.aborted) return `not done after ${timeoutMs / 1000} s`
    throw error
  } finally {
    await stopGroup(shell.pid!)
  }
}

async function stopGroup(group: number): Promise<void> {
  const send = (signal: NodeJS.Signals | 0): boolean => {
    try {
      return process.kill(-group, signal)
    } catch {
      return false
    }
  }
  send('SIGTERM')
  const until = performance.now() + GRACE_MS
  while (send(0) && performance.now() < until) await new Promise(resolve => setTimeout(resolve, 50))
  send('SIGKILL')
}

/** `eldr` and `npx eldr` as the build has them; `up` and `npm start` on a free port where none is named. */
function writePrograms(bin: string, root: string, port: number): void {
  const node = `exec ${quoted(process.execPath)} ${quoted(join(root, 'dist', 'cli', 'main.js'))} "$@"`
  const usual = `case " $* " in *" --port "*|*" --help "*) ;; *) case "$1" in up|serve|worker) set -- "$@" --port ${port};; esac;; esac`
  const others = 'PATH=${PATH#*:}'
  const programs = {
    eldr: [usual, node],
    npx: ['if [ "$1" = eldr ]; then shift; exec eldr "$@"; fi', others, 'exec npx "$@"'],
    // A page's request that is refused is a page that is wrong.
    curl: [
      others,
      'case " $* " in *" -f "*|*" -sf "*|*" --fail"*) ;; *) set -- --fail-with-body "$@";; esac',
      'exec curl "$@"',
    ],
    npm: [others, `if [ "$*" = start ]; then exec npm start -- --port ${port}; fi`, 'exec npm "$@"'],
  }
  for (const [name, lines] of Object.entries(programs)) {
    writeFileSync(join(bin, name), `#!/usr/bin/env bash\n${lines.join('\n')}\n`)
    chmodSync(join(bin, name), 0o755)
  }
}

function portsOf(page: Page): Set<number> {
  const ports = new Set([USUAL_PORT])
  const texts = page.blocks
    .filter(block => isShell(block) || block.language === SET_UP || fateOf(block)?.kind === 'file')
    .map(({ text }) => text)
  for (const text of texts)
    for (const [, port] of text.matchAll(/(?:127\.0\.0\.1:|localhost:|port[ =]|port: )(\d{4,5})\b/g))
      ports.add(Number(port))
  return ports
}

/**
 * Ports that nobody listens on, below those that systems give to outgoing connections: between now and the moment that a page's server
 * wants one, a client of whoever else is on the machine must not get it.
 */
async function freePorts(wanted: ReadonlySet<number>): Promise<Map<number, number>> {
  const ports = new Map<number, number>()
  const held: Server[] = []
  for (const port of wanted) {
    while (!ports.has(port)) {
      const server = createServer().listen(20_000 + Math.floor(Math.random() * 12_000), '127.0.0.1')
      const isFree = await once(server, 'listening').then(
        () => true,
        () => false, // taken: another one then
      )
      if (!isFree) continue
      held.push(server)
      ports.set(port, (server.address() as AddressInfo).port)
    }
  }
  await Promise.all(held.map(async server => once(server.close(), 'close')))
  return ports
}

function renamed(text: string, ports: ReadonlyMap<number, number>, back: boolean): string {
  const names = new Map(Array.from(ports, ([port, free]) => (back ? [free, port] : [port, free])))
  return text.replaceAll(/(?<![\d.,])\d{4,5}(?![\d.,]\d|\d)/g, number =>
    String(names.get(Number(number)) ?? number),
  )
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}

const quoted = (text: string) => `'${text.replaceAll("'", String.raw`'\''`)}'`
const tailOf = (text: string) => text.split('\n').slice(-SHOWN_LINES).join('\n')
