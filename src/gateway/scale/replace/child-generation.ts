/** A gateway in a child of the first process: a successor that starts, serves, and is replaced itself. */
import { type ChildProcess, fork } from 'node:child_process'
import { EldrError } from '../../../errors.ts'
import type { ListenHandle } from '../../http/listen.ts'
import { failureResult, type ThreadResult, unwrapResult } from '../../routing/thread-result.ts'
import {
  type Command,
  type FromSuccessor,
  type Handed,
  type OwnerAddress,
  type Replaceable,
  SUCCESSOR_VARIABLE,
  type Successor,
  type ToSuccessor,
} from './messages.ts'

type Kind = FromSuccessor['kind']
type Message<K extends Kind> = Extract<FromSuccessor, { kind: K }>

export class ChildGeneration implements Replaceable {
  /** Where it takes the tickets of other processes, once it is prepared. */
  owner: OwnerAddress | undefined
  /** Resolves with the exit code. */
  readonly exited: Promise<number>
  readonly #child: ChildProcess
  readonly #waiting = new Map<Kind, (message: never, handle?: ListenHandle) => void>()
  /** Rejects when it fails or exits. */
  readonly #ended: Promise<never>
  #end: (reason: unknown) => void = () => {}

  /** `asked`: a client of its admin API asks for a replacement. */
  constructor({ node, nodeArgs, program, args, folder, env }: Command, asked: () => Promise<Successor>) {
    this.#ended = new Promise<never>((_, reject) => (this.#end = reject))
    this.#ended.catch(() => {})
    const child = fork(program, args, {
      execPath: node,
      execArgv: [...nodeArgs],
      cwd: folder,
      env: { ...env, [SUCCESSOR_VARIABLE]: '1' },
      // Its own process group: Ctrl-C in the terminal goes to the first process alone.
      detached: true,
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    })
    this.#child = child
    this.exited = new Promise(resolve => {
      child.once('exit', (code, signal) => {
        this.#end(notStarted(`the new process ended before it served (${signal ?? `exit code ${code}`})`))
        resolve(code ?? 1)
      })
      child.on('error', error => {
        this.#end(notStarted(error.message))
        if (child.pid === undefined) resolve(1)
      })
    })
    child.on('message', (message: FromSuccessor, handle: unknown) => {
      if (message.kind === 'failed') this.#end(errorIn(message.failure))
      if (message.kind === 'replace') void this.#answer(message.id, asked)
      const waiting = this.#waiting.get(message.kind)
      this.#waiting.delete(message.kind)
      waiting?.(message as never, handle as ListenHandle | undefined)
    })
  }

  get pid(): number {
    return this.#child.pid ?? 0
  }

  /** Rejects with the reason if the process fails first. */
  next<K extends Kind>(kind: K): Promise<{ message: Message<K>; handle?: ListenHandle }> {
    const received = new Promise<{ message: Message<K>; handle?: ListenHandle }>(resolve =>
      this.#waiting.set(kind, (message, handle) => resolve({ message, handle })),
    )
    return Promise.race([received, this.#ended])
  }

  /** Rejects if the process fails before the other promise settles. */
  unlessEnded<T>(other: Promise<T>): Promise<T> {
    return Promise.race([other, this.#ended])
  }

  send(message: ToSuccessor, handle?: ListenHandle): Promise<void> {
    return new Promise(resolve => {
      if (this.#child.connected) this.#child.send(message, handle as never, () => resolve())
      else resolve()
    })
  }

  async handOut(): Promise<{ handed: Handed; listener: ListenHandle }> {
    void this.send({ kind: 'handOut' })
    const { message, handle } = await this.next('handed')
    if (handle === undefined) throw notStarted('the running process did not pass its socket on')
    return { handed: message.handed, listener: handle }
  }

  async declareTo(owner: OwnerAddress): Promise<void> {
    void this.send({ kind: 'declare', owner })
    await this.next('declared').catch(() => {}) // it has exited: it has nothing to declare
  }

  takeBack(): void {
    void this.send({ kind: 'takeBack' })
  }

  async leave(): Promise<void> {
    void this.send({ kind: 'leave' })
    await this.exited
  }

  /** Gives up a process that does not start. */
  fail(reason: unknown): void {
    this.#end(reason)
    this.kill('SIGKILL')
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal)
  }

  async #answer(id: number, asked: () => Promise<Successor>): Promise<void> {
    const outcome = await asked().then(
      (result): ThreadResult => ({ result }),
      (error: unknown) => failureResult(error),
    )
    void this.send({ kind: 'replaced', id, outcome })
  }
}

export function notStarted(found: string): EldrError {
  return new EldrError('ELDR_REPLACE_FAILED', { found })
}

function errorIn(failure: ThreadResult): unknown {
  try {
    unwrapResult(failure)
  } catch (error) {
    return error instanceof EldrError ? error : notStarted((error as Error).message)
  }
  return undefined
}
