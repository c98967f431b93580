/**
 * Machines as network namespaces, connected by a switch (wire.py) that delays, loses and cuts frames. Names
 * contain the pid of their creator, so that several test files run at once and the next run removes what a
 * killed one left behind. Addresses are the same in every network: no namespace reaches another network.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { AS_ROOT, asRoot, pathWithSbin, python } from './root.ts'

export interface Rule {
  readonly delayMs?: number
  /** Largest deviation from the delay. */
  readonly jitterMs?: number
  /** From 0 to 1. */
  readonly loss?: number
  readonly cut?: boolean
}

/** Counts of frames from one machine to another. */
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
      // IPv6 is not used: its neighbour discovery would only add noise to the counts.
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

  /** Starts a program on a machine. `env` is passed through sudo too. The program ends with this process. */
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

  /** Sends SIGKILL to all processes of a machine. */
  kill(name: Name): void {
    const pids = asRoot('ip', 'netns', 'pids', this.#namespace(name)).split('\n').filter(Boolean)
    // One by one, since one may have exited meanwhile.
    for (const pid of pids) asRoot('sh', '-c', `kill -9 ${pid} 2>/dev/null || true`)
  }

  /** Sets a value of the machine's network namespace, such as net.ipv4.tcp_wmem. */
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

  /** Sets the rule from one machine to the other, not back. Replaces the previous rule. */
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

  /** Errors are ignored: cleanup removes as much as possible. */
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

  /** The next line. The switch responds in order. */
  #answer(): Promise<string> {
    return new Promise((resolve, reject) => {
      const ended = () => reject(new Error('the switch exited'))
      this.#wire.once('exit', ended)
      this.#answers.push(line => {
        this.#wire.off('exit', ended)
        resolve(line)
      })
    })
  }
}

/** Removes namespaces of dead processes, with everything that still runs in them. */
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
