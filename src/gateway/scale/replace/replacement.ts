/**
 * Replaces the gateway of `eldr serve` by new processes, one after the other. The first process is the parent
 * of all of them, and stays when its own requests have ended: service managers and containers watch its
 * process id. Only one gateway accepts connections; those before it finish their requests.
 */
import { rmSync } from 'node:fs'
import { EldrError } from '../../../errors.ts'
import type { Log } from '../../observe/log/log.ts'
import { privateFolder } from '../processes/private-folder.ts'
import { ChildGeneration, notStarted } from './child-generation.ts'
import type { Command, Replaceable, Successor } from './messages.ts'

/** The gateway of the first process. */
export interface FirstGateway extends Replaceable {
  readonly url: string
  stop(): Promise<void>
}

export interface ReplacementOptions {
  readonly first: FirstGateway
  /** The command line of the first process. */
  readonly command: Command
  readonly readyMs: number
  readonly log: Log
  /** Called when another gateway serves, with its URL. */
  replaced?(url: string): void
}

export class Replacement {
  /** Resolves with its exit code when the process that serves has exited by itself. */
  readonly ended: Promise<number>
  readonly #options: ReplacementOptions
  readonly #folders: string[] = []
  /** Gateways that finish their requests. */
  readonly #old = new Set<Replaceable>()
  #current: FirstGateway | ChildGeneration
  /** The last command that succeeded: the admin API runs it again. */
  #command: Command
  #readyMs: number
  #starting: ChildGeneration | undefined
  #stopping = false
  #end: (code: number) => void = () => {}

  constructor(options: ReplacementOptions) {
    this.#options = options
    this.#current = options.first
    this.#command = options.command
    this.#readyMs = options.readyMs
    this.ended = new Promise(resolve => (this.#end = resolve))
    process.once('exit', () => {
      for (const child of this.#children()) child.kill('SIGKILL')
      for (const folder of this.#folders) rmSync(folder, { recursive: true, force: true })
    })
  }

  /** The process that serves, if it is not this one. */
  get child(): ChildGeneration | undefined {
    return this.#current instanceof ChildGeneration ? this.#current : undefined
  }

  /** Resolves when the new process serves. If it fails, the old one continues, and this rejects. */
  readonly replace = async (command = this.#command): Promise<Successor> => {
    if (this.#starting !== undefined) throw new EldrError('ELDR_REPLACE_RUNNING')
    if (this.#stopping) throw notStarted('the gateway is shutting down')
    const { log } = this.#options
    const child = new ChildGeneration(command, () => this.replace())
    this.#starting = child
    log.info({ pid: child.pid }, 'starting a process to replace this gateway')
    const limit = setTimeout(
      () => child.fail(notStarted(`the new process does not serve after ${this.#readyMs / 1000} s`)),
      this.#readyMs,
    )
    try {
      return await this.#takeOver(child, command)
    } catch (error) {
      child.fail(error)
      log.error({ err: error }, 'not replaced: this gateway continues to serve')
      throw error
    } finally {
      clearTimeout(limit)
      this.#starting = undefined
    }
  }

  /** Stops all processes. Resolves with the exit code. */
  async stop(): Promise<number> {
    this.#stopping = true
    this.#starting?.fail(notStarted('the gateway is shutting down'))
    const children = this.#children()
    for (const child of children) child.kill('SIGTERM')
    const others = children.filter(child => child !== this.#current).map(({ exited }) => exited)
    const [code = 0] = await Promise.all([this.child?.exited, this.#options.first.stop(), ...others])
    return code
  }

  async #takeOver(child: ChildGeneration, command: Command): Promise<Successor> {
    const before = this.#current
    await child.next('checked')
    const { handed, listener } = await child.unlessEnded(before.handOut()).catch((error: unknown) => {
      before.takeBack()
      throw error
    })
    try {
      const folder = privateFolder()
      this.#folders.push(folder)
      void child.send({ kind: 'start', handed, folder })
      const { message: prepared } = await child.next('prepared')
      child.owner = prepared.owner
      await child.unlessEnded(this.#declareTo(child))
      await child.send({ kind: 'serve' }, listener)
      const { message: serving } = await child.next('serving')
      this.#serves(child, before)
      this.#command = command
      this.#readyMs = prepared.readyMs
      this.#options.log.info({ pid: child.pid, version: serving.version }, 'replaced: a new process serves')
      this.#options.replaced?.(serving.url)
      return { pid: child.pid, version: serving.version }
    } catch (error) {
      before.takeBack()
      if (before instanceof ChildGeneration) for (const old of this.#old) void old.declareTo(before.owner!)
      throw error
    } finally {
      // The copy of this process; the first gateway uses its own socket.
      if (before instanceof ChildGeneration) listener.close()
    }
  }

  async #declareTo({ owner }: ChildGeneration): Promise<void> {
    await Promise.all([this.#current, ...this.#old].map(each => each.declareTo(owner!)))
  }

  #serves(child: ChildGeneration, before: FirstGateway | ChildGeneration): void {
    this.#current = child
    this.#old.add(before)
    void before.leave().then(() => {
      this.#old.delete(before)
      this.#options.log.info('the process before has ended its last request')
    })
    void child.exited.then(code => {
      if (this.#current === child && !this.#stopping) this.#end(code)
    })
  }

  #children(): ChildGeneration[] {
    return [this.#current, this.#starting, ...this.#old].filter(each => each instanceof ChildGeneration)
  }
}
