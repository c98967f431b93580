// Processes of a soak: a gateway from dist/ and fake workers that can be killed, suspended and restarted.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../..', import.meta.url))
const WORKER = join(root, 'test', 'fake-worker', 'main.mjs')
const GATEWAY = join(root, 'dist', 'cli', 'main.js')

/** A worker that can be killed, suspended, and restarted at the same address. */
export class Worker {
  port = 0
  #role
  #pace
  /** @type {import('node:child_process').ChildProcess | undefined} */
  #child

  /** @param {'prefill' | 'decode'} role @param {string[]} pace flags that set its speed */
  constructor(role, pace) {
    this.#role = role
    this.#pace = pace
  }

  get url() {
    return `http://127.0.0.1:${this.port}`
  }

  async start() {
    const flags = ['--role', this.#role, '--port', String(this.port), '--until-stdin-ends', ...this.#pace]
    this.#child = spawn(process.execPath, [WORKER, ...flags], { stdio: ['pipe', 'pipe', 'inherit'] })
    const [line] = await once(createInterface({ input: this.#child.stdout }), 'line')
    this.port = JSON.parse(line).port
  }

  async kill() {
    const child = this.#child
    const gone = once(child, 'exit')
    child.kill('SIGKILL')
    await gone
  }

  hang() {
    this.#child.kill('SIGSTOP')
  }

  goOn() {
    this.#child.kill('SIGCONT')
  }

  async counters() {
    return { role: this.#role, ...(await (await fetch(`${this.url}/fake/counters`)).json()) }
  }
}

/** `eldr worker`, which can be killed and restarted at the same address. */
export class EmbeddedWorker {
  url = ''
  #flags
  /** @type {import('node:child_process').ChildProcess | undefined} */
  #child

  /** @param {string[]} flags */
  constructor(flags) {
    this.#flags = flags
    process.on('exit', () => this.#child?.kill('SIGKILL'))
  }

  async start() {
    const port = this.url === '' ? '0' : new URL(this.url).port
    const flags = ['worker', '--port', port, '--log-level', 'error', '--json-ready', ...this.#flags]
    this.#child = spawn(process.execPath, [GATEWAY, ...flags], { stdio: ['ignore', 'pipe', 'inherit'] })
    const [line] = await once(createInterface({ input: this.#child.stdout }), 'line')
    this.url = JSON.parse(line).url
  }

  async kill() {
    const gone = once(this.#child, 'exit')
    this.#child.kill('SIGKILL')
    await gone
  }
}

/** `eldr serve` with its log lines counted by level; errors are kept. */
export class Gateway {
  url = ''
  /** @type {number | null | undefined} undefined while it runs */
  exitCode
  errors = []
  warnings = 0
  #child
  #folder = mkdtempSync(join(tmpdir(), 'eldr-soak-'))

  /** @param {object} config the configuration file */
  async start(config) {
    const file = join(this.#folder, 'eldr.json')
    writeFileSync(file, JSON.stringify(config))
    this.#child = spawn(process.execPath, ['--trace-warnings', GATEWAY, 'serve', '--config', file], {
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    this.#child.on('exit', (code, signal) => (this.exitCode = code ?? signal))
    process.on('exit', () => this.#child.kill('SIGKILL')) // it must not outlive this process
    await new Promise((resolve, reject) => {
      this.#child.once('exit', () =>
        reject(new Error(`the gateway did not start: ${this.errors.join('\n')}`)),
      )
      createInterface({ input: this.#child.stderr }).on('line', line => this.#read(line, resolve))
    })
  }

  /** @param {string} line @param {() => void} listening */
  #read(line, listening) {
    let entry
    try {
      entry = JSON.parse(line)
    } catch {
      this.errors.push(line) // output of Node itself: a warning, or why it exited
      return
    }
    if (entry.level >= 50) this.errors.push(line)
    else if (entry.level === 40) this.warnings++
    const [, url] = /^listening on (\S+)/.exec(entry.msg ?? '') ?? []
    if (url === undefined) return
    this.url = url
    listening()
  }

  /** Samples summed by name. */
  async metrics() {
    const text = await (await fetch(`${this.url}/metrics`)).text()
    const sums = new Map()
    for (const [, name, value] of text.matchAll(/^([a-z_]+)(?:\{[^}]*\})? (\S+)$/gm))
      sums.set(name, (sums.get(name) ?? 0) + Number(value))
    return sums
  }

  async stop() {
    if (this.exitCode === undefined) {
      const gone = once(this.#child, 'exit')
      this.#child.kill('SIGTERM')
      await gone
    }
    rmSync(this.#folder, { recursive: true, force: true })
  }
}
