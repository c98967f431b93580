/**
 * Runs a page as a reader would: its commands in order, in one shell, in a folder that looks like a clone.
 * Ports are replaced by free ones, so that pages do not collide with other programs. Background processes are
 * stopped at the end.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePort } from '../free-port.ts'
import { modeOf, isShell, SET_UP, type Block, type Page } from './markdown.ts'
import { missingLines } from './output.ts'

/** Entries of a clone that commands on pages use. */
const CLONE_ENTRIES = [
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
/** Where `eldr up`, `serve` and `worker` listen by default. */
const DEFAULT_PORT = 8000
/** Between SIGTERM and SIGKILL. */
const GRACE_MS = 10_000
const SHOWN_LINES = 40

export interface PageRun {
  readonly name: string
  readonly page: Page
  readonly root: string
  readonly timeoutMs: number
  /** Called with the output of each block that was run, to paste it into a page. */
  readonly onPrinted?: (block: Block, printed: string) => void
}

/** Rejects with the line of the page and the output if a command or an expectation fails. */
export async function runPage({ name, page, root, timeoutMs, onPrinted }: PageRun): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'eldr-docs-'))
  try {
    const [work, bin] = [join(folder, 'eldr'), join(folder, 'bin')]
    for (const path of [work, bin]) mkdirSync(path)
    for (const entry of CLONE_ENTRIES) symlinkSync(join(root, entry), join(work, entry))
    const ports = new Map<number, number>()
    for (const port of portsOf(page)) ports.set(port, await freePort())
    writePrograms(bin, root, ports.get(DEFAULT_PORT)!)
    const log = (block: Block) => join(folder, `${block.line}.log`)
    const script = join(folder, 'page.sh')
    writeFileSync(script, scriptOf(page, log, ports))
    const progress = join(folder, 'progress')
    writeFileSync(progress, '')
    const failure = await runScript({ script, work, bin, progress, timeoutMs })
    const outputOf = (block: Block) => withPorts(read(log(block)), ports, true)
    if (onPrinted !== undefined)
      for (const block of page.blocks) if (modeOf(block)?.kind === 'run') onPrinted(block, outputOf(block))
    if (failure !== undefined) {
      const startedLine = Number(read(progress).trim().split('\n').at(-1))
      const block = page.blocks.find(({ line }) => line === startedLine)
      throw new Error(
        `${name}:${startedLine}: ${failure}\n${block?.text ?? ''}\n--- printed:\n${block ? tailOf(outputOf(block)) : 'nothing: the shell did not start'}`,
      )
    }
    checkOutputs(name, page, outputOf)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

function checkOutputs(name: string, page: Page, outputOf: (block: Block) => string): void {
  let last: Block | undefined
  for (const block of page.blocks) {
    const mode = modeOf(block)
    if (mode?.kind === 'run') last = block
    if (mode?.kind !== 'expect') continue
    if (last === undefined) throw new Error(`${name}:${block.line}: no block before it is run`)
    const missing = missingLines(block.text, outputOf(last))
    if (missing.length > 0)
      throw new Error(
        `${name}:${block.line}: not printed:\n${missing.join('\n')}\n--- printed:\n${tailOf(outputOf(last))}`,
      )
  }
}

/** One script, so that variables and background jobs persist. Each block's output has its own file. */
function scriptOf(page: Page, log: (block: Block) => string, ports: ReadonlyMap<number, number>): string {
  const parts = ['set -eo pipefail']
  for (const block of page.blocks) {
    const mode = modeOf(block)
    const text = withPorts(block.text, ports, false)
    if (mode?.kind === 'file') parts.push(`cat > ${quoted(mode.name)} <<'END_OF_FILE'\n${text}\nEND_OF_FILE`)
    if (mode?.kind !== 'run') continue
    parts.push(`echo ${block.line} >> "$PROGRESS"`, `exec > ${quoted(log(block))} 2>&1`)
    if (mode.until !== undefined)
      parts.push(
        `{\n${text}\n} &`,
        `until grep -qF -- ${quoted(withPorts(mode.until, ports, false))} ${quoted(log(block))}; do kill -0 $! || exit 1; sleep 0.1; done`,
      )
    else if (mode.failsWith === undefined) parts.push(text)
    else
      parts.push(
        'set +e',
        `( set -e\n${text}\n)`,
        `status=$?`,
        'set -e',
        `[ "$status" = ${mode.failsWith} ] || { echo "status $status"; exit 1; }`,
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
    detached: true, // its own process group, so that everything it starts can be stopped
  })
  const timer = AbortSignal.timeout(timeoutMs)
  try {
    const [status] = (await once(shell, 'exit', { signal: timer })) as [number | null]
    return status === 0 ? undefined : `exited with status ${status}`
  } catch (error) {
    if (timer.aborted) return `timed out after ${timeoutMs / 1000} s`
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

/** Wrappers: `eldr` and `npx eldr` run the build; `up` and `npm start` use a free port if none is given. */
function writePrograms(bin: string, root: string, port: number): void {
  const node = `exec ${quoted(process.execPath)} ${quoted(join(root, 'dist', 'cli', 'main.js'))} "$@"`
  const usual = `case " $* " in *" --port "*|*" --help "*) ;; *) case "$1" in up|serve|worker) set -- "$@" --port ${port};; esac;; esac`
  const others = 'PATH=${PATH#*:}'
  const programs = {
    eldr: [usual, node],
    npx: ['if [ "$1" = eldr ]; then shift; exec eldr "$@"; fi', others, 'exec npx "$@"'],
    // A refused request means that the page is wrong.
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
  const ports = new Set([DEFAULT_PORT])
  const texts = page.blocks
    .filter(block => isShell(block) || block.language === SET_UP || modeOf(block)?.kind === 'file')
    .map(({ text }) => text)
  for (const text of texts)
    for (const [, port] of text.matchAll(/(?:127\.0\.0\.1:|localhost:|port[ =]|port: )(\d{4,5})\b/g))
      ports.add(Number(port))
  return ports
}

/** Replaces the ports of a page by free ones, or back. */
function withPorts(text: string, ports: ReadonlyMap<number, number>, back: boolean): string {
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
