/** The owner's part in a replacement: it is told each step by the supervisor, and asks for one. */
import type { Replaced } from '../control/admin/replace-routes.ts'
import { failureResult, type ThreadResult, unwrapResult } from '../routing/thread-result.ts'
import {
  type OwnerStep,
  tellSupervisor,
  type ToOwner,
  type ToRelay,
} from '../scale/processes/supervisor-messages.ts'
import type { Gateway } from './start-gateway.ts'

type Steps = Pick<Gateway, 'changes' | 'metricsPort' | 'stopSharing' | 'context'>

export class ReplaceSteps {
  readonly #calls = new Map<number, (outcome: ThreadResult) => void>()
  #lastCall = 0

  /** For the admin API. */
  readonly replace = async (): Promise<Replaced> => {
    const id = ++this.#lastCall
    const outcome = await new Promise<ThreadResult>(resolve => {
      this.#calls.set(id, resolve)
      tellSupervisor({ kind: 'replace', id })
    })
    return unwrapResult(outcome) as Replaced
  }

  take(message: ToOwner | ToRelay, gateway: Steps): void {
    const { changes, metricsPort, stopSharing } = gateway
    if (message.kind === 'replaced') this.#calls.get(message.id)?.(message.outcome)
    else if (message.kind === 'handOut') void done('handOut', changes.freeze())
    else if (message.kind === 'declare') void done('declare', metricsPort.close())
    else if (message.kind === 'openMetrics') void done('openMetrics', metricsPort.takeOver())
    else if (message.kind === 'leave') void stopSharing()
    else if (message.kind === 'takeBack') {
      changes.thaw()
      metricsPort
        .takeOver()
        .catch((err: unknown) => gateway.context.log.error({ err }, 'cannot open the metrics port again'))
    }
  }
}

async function done(step: OwnerStep, work: Promise<void>): Promise<void> {
  try {
    await work
    tellSupervisor({ kind: 'done', step })
  } catch (error) {
    tellSupervisor({ kind: 'done', step, failure: failureResult(error) })
  }
}
