/**
 * Machines as network namespaces, with a switch between them (wire.py) that delays, loses and cuts. Names
 * have the pid of their maker, so
 * that several files run at once, and what one left behind that was killed is cleared away by the next.
 * Addresses are the same in every
 * network: no namespace reaches another network than its own.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { AS_ROOT, asRoot, pathWithSbin, python } from './root.ts'

export interface Rule {
  readonly delayMs?: number
  /** Up to so much more or less. */
  readonly jitterMs?: number
  /** From 0 to 1. */
  readonly loss?: number
  readonly cut?: boolean
}

/** Frames from one machine to another. */
export interface PathCounts {
  readonly passed: number
  readonly lost: number
  readonly cut: number
}

const WIRE = fileURLToPath(new URL('wire.py', import.meta.url))
const OURS = /^eldr(\d+)[np]\d+-/
let networks = 0

export class Network<Name extends string = string> {
  readonly names: readonly Name[]
  readonly #prefix: string
  readonly #onExit = () => this.#remove()
  #wire!: ChildProcess
  #answers: ((line: string) => void)[] = []

  private constructor(names: readonly Name[]) {
    this.names = names
    this.#prefix = `eldr${process.pid}n${networks++}`
  }

  static async start<Name extends string>(names: readonly Name[], seed = 'wire'): Promise<Network<Name>> {
    removeStale()
    const network = new Network(names)
    process.on('exit', network.#onExit)
    try {
      await network.#start(seed)
    } catch (error) {
      await network.close()
      throw error
    }
    return network
  }

  async #start(seed: string): Promise<void> {
    for (const name of this.names) asRoot('ip', 'netns', 'add', this.#namespace(name))
    const [program, ...flags] = [
      ...AS_ROOT,
      python(),
      WIRE,
      seed,
      ...this.names.map(name => `${name}=${this.#namespace(name)}`),
    ]
    this.#wire = spawn(program!, flags, { stdio: ['pipe', 'pipe', 'inherit'] })
    createInterface({ input: this.#wire.stdout! }).on('line', line => this.#answers.shift()?.(line))
    await this.#answer()
    for (const name of this.names) {
      const space = this.#namespace(name)
      // IPv6 is not used here: its control traffic would be noise in the counts.
      asRoot(
        'ip',
        'netns',
        'exec',
        space,
        'sh',
        '-c',
        'echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 || true',
      )
      asRoot('ip', '-n', space, 'addr', 'add', `${this.address(name)}/24`, 'dev', 'eth0')
      for (const device of ['lo', 'eth0']) asRoot('ip', '-n', space, 'link', 'set', device, 'up')
    }
  }

  address(name: Name): string {
    return `10.77.0.${this.names.indexOf(name) + 1}`
  }

  /**
   * Starts a program on a machine; `env` reaches it also where it is started by sudo. It does not outlive
   * this process, however that ends.
   */
  spawn(name: Name, command: readonly string[], env: Readonly<Record<string, string>> = {}): ChildProcess {
    const settings = Object.entries(env).map(([key, value]) => `${key}=${value}`)
    const [program, ...flags] = [
      ...AS_ROOT,
      'ip',
      'netns',
      'exec',
      this.#namespace(name),
      'setpriv',
      '--pdeathsig',
      'KILL',
      'env',
      ...settings,
      ...command,
    ]
    return spawn(program!, flags, {
      stdio: ['pipe', 'pipe', 'pipe'],
      env: { ...process.env, PATH: pathWithSbin() },
    })
  }

  /** SIGKILL to all that runs on a machine. */
  kill(name: Name): void {
    const pids = asRoot('ip', 'netns', 'pids', this.#namespace(name)).split('\n').filter(Boolean)
    // Each by itself: one may have ended meanwhile.
    for (const pid of pids) asRoot('sh', '-c', `kill -9 ${pid} 2>/dev/null || true`)
  }

  /** Of the machine's own network alone, such as net.ipv4.tcp_wmem. */
  sysctl(name: Name, key: string, value: string): void {
    asRoot(
      'ip',
      'netns',
      'exec',
      this.#namespace(name),
      'sh',
      '-c',
      `echo '${value}' > /proc/sys/${key.replaceAll('.', '/')}`,
    )
  }

  /** From one to the other, not back. Replaces what held before. */
  async rule(from: Name, to: Name, { delayMs, jitterMs, loss, cut = false }: Rule): Promise<void> {
    const words = [
      delayMs !== undefined && `delay=${delayMs}`,
      jitterMs !== undefined && `jitter=${jitterMs}`,
      loss !== undefined && `loss=${loss}`,
      cut && 'cut',
    ]
    await this.#ask(['rule', from, to, ...words.filter(word => word !== false)].join(' '))
  }

  async both(a: Name, b: Name, rule: Rule): Promise<void> {
    await this.rule(a, b, rule)
    await this.rule(b, a, rule)
  }

  async everywhere(rule: Rule, names: readonly Name[] = this.names): Promise<void> {
    for (const from of names) for (const to of names) if (from !== to) await this.rule(from, to, rule)
  }

  async heal(): Promise<void> {
    await this.#ask('clear')
  }

  async counts(from: Name, to: Name): Promise<PathCounts> {
    const all = JSON.parse(await this.#ask('counts')) as Record<string, [number, number, number]>
    const [passed, lost, cut] = all[`${from}>${to}`] ?? [0, 0, 0]
    return { passed, lost, cut }
  }

  async close(): Promise<void> {
    process.off('exit', this.#onExit)
    for (const name of this.names) this.#quietly(() => this.kill(name))
    if (this.#wire?.exitCode === null) {
      const exited = once(this.#wire, 'exit')
      this.#wire.stdin!.end()
      await exited
    }
    this.#remove()
  }

  #remove(): void {
    for (const name of this.names) this.#quietly(() => removeNamespace(this.#namespace(name)))
  }

  /** At the end as much is cleared away as can be. */
  #quietly(work: () => void): void {
    try {
      work()
    } catch {}
  }

  #namespace(name: Name): string {
    return `${this.#prefix}-${name}`
  }

  async #ask(line: string): Promise<string> {
    const answer = this.#answer()
    this.#wire.stdin!.write(`${line}\n`)
    const text = await answer
    if (text.startsWith('error')) throw new Error(`${line}: ${text}`)
    return text
  }

  /** The next line; the switch answers in the order it is asked. */
  #answer(): Promise<string> {
    return new Promise((resolve, reject) => {
      const ended = () => reject(new Error('the switch has ended'))
      this.#wire.once('exit', ended)
      this.#answers.push(line => {
        this.#wire.off('exit', ended)
        resolve(line)
      })
    })
  }
}

/** Namespaces of processes that are no more, with all that still runs in them. */
export function removeStale(): void {
  for (const line of asRoot('ip', 'netns', 'list').split('\n')) {
    const name = line.split(' ', 1)[0]!
    const pid = Number(OURS.exec(name)?.[1])
    if (pid > 0 && !lives(pid)) removeNamespace(name)
  }
}

function removeNamespace(name: string): void {
  asRoot(
    'sh',
    '-c',
    `for pid in $(ip netns pids ${name} 2>/dev/null); do kill -9 $pid 2>/dev/null || true; done; ip netns del ${name}`,
  )
}

function lives(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}
