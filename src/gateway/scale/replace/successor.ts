/** The side of a successor: a process of `eldr serve` that a running gateway has started to replace it. */
import type { ListenHandle } from '../../http/listen.ts'
import { failureResult, type ThreadResult, unwrapResult } from '../../routing/thread-result.ts'
import { VERSION } from '../../../version.ts'
import {
  type FromSuccessor,
  type Handed,
  type OwnerAddress,
  type Replaceable,
  SUCCESSOR_VARIABLE,
  type Successor as NewProcess,
  type ToSuccessor,
} from './messages.ts'

/** What a gateway of `eldr serve` gets to replace another one, and to be replaced. */
export interface Replacing {
  /** Undefined for the first process. */
  readonly takesOver?: TakesOver
  /** Starts a successor with the same command line. */
  replace(): Promise<NewProcess>
}

export interface TakesOver {
  readonly handed: Handed
  /** Private folder for sockets. */
  readonly folder: string
  /** Call when everything but the ports is open. Resolves with the listening socket when it may be used. */
  socket(owner: OwnerAddress): Promise<ListenHandle>
}

export class SuccessorSide {
  readonly #waiting = new Map<ToSuccessor['kind'], (message: never, handle?: ListenHandle) => void>()
  #gateway: Replaceable | undefined
  readonly #calls = new Map<number, (outcome: ThreadResult) => void>()
  #lastCall = 0

  /** Undefined if this process is not a successor. */
  static find(): SuccessorSide | undefined {
    const isSuccessor = process.env[SUCCESSOR_VARIABLE] !== undefined && process.send !== undefined
    delete process.env[SUCCESSOR_VARIABLE]
    return isSuccessor ? new SuccessorSide() : undefined
  }

  private constructor() {
    process.on('message', (message: ToSuccessor, handle: unknown) => {
      const waiting = this.#waiting.get(message.kind)
      this.#waiting.delete(message.kind)
      if (waiting !== undefined) waiting(message as never, handle as ListenHandle | undefined)
      else void this.#take(message)
    })
    process.on('disconnect', () => process.exit(1)) // the first process is gone
  }

  /** The configuration is valid: gets the state of the process before. */
  async takesOver(readyMs: number): Promise<TakesOver> {
    tell({ kind: 'checked' })
    const { handed, folder } = await this.#next<'start'>('start')
    return {
      handed,
      folder,
      socket: owner => {
        tell({ kind: 'prepared', owner, readyMs })
        return new Promise(resolve => this.#waiting.set('serve', (_, handle) => resolve(handle!)))
      },
    }
  }

  serving(gateway: Replaceable & { readonly url: string }): void {
    this.#gateway = gateway
    tell({ kind: 'serving', version: VERSION, url: gateway.url })
  }

  failed(error: unknown): void {
    tell({ kind: 'failed', failure: failureResult(error) })
  }

  /** Asks the first process to replace this one. */
  readonly replace = async (): Promise<NewProcess> => {
    const id = ++this.#lastCall
    const outcome = await new Promise<ThreadResult>(resolve => {
      this.#calls.set(id, resolve)
      tell({ kind: 'replace', id })
    })
    return unwrapResult(outcome) as NewProcess
  }

  #next<K extends ToSuccessor['kind']>(kind: K): Promise<Extract<ToSuccessor, { kind: K }>> {
    return new Promise(resolve => this.#waiting.set(kind, resolve as (message: never) => void))
  }

  async #take(message: ToSuccessor): Promise<void> {
    if (message.kind === 'replaced') return this.#calls.get(message.id)?.(message.outcome)
    const gateway = this.#gateway
    if (gateway === undefined) return
    if (message.kind === 'handOut') {
      const { handed, listener } = await gateway.handOut()
      tell({ kind: 'handed', handed }, listener)
    } else if (message.kind === 'declare') {
      await gateway.declareTo(message.owner)
      tell({ kind: 'declared' })
    } else if (message.kind === 'takeBack') gateway.takeBack()
    else if (message.kind === 'leave') this.left(gateway.leave())
  }

  /** Called with the end of a gateway that was replaced. */
  left: (ended: Promise<void>) => void = () => {}
}

function tell(message: FromSuccessor, handle?: ListenHandle): void {
  if (process.connected) process.send!(message, handle as never)
}
