/** Live recalibration for the process of the gateway that decides, which loads this module by its URL. */
import { resolve } from 'node:path'
import { Adapter } from '../adapt/adapter.ts'
import { createAttemptRunner } from '../adapt/run-attempt.ts'
import type { AdaptationModule } from '../gateway/app/adaptation.ts'

const TICK_MS = 1_000

export const createAdaptation: AdaptationModule['createAdaptation'] = ({ mode, folder, ...rest }, host) => {
  const adapter = new Adapter(
    { ...rest, folder: resolve(folder), mode: mode === 'on' ? 'on' : 'suggest' },
    host,
    createAttemptRunner(),
  )
  void adapter.restore()
  const timer = setInterval(() => void adapter.tick(), TICK_MS).unref()
  return {
    decided: (request, plain) => adapter.decided(request, plain),
    reported: (id, steps, counts) => adapter.reported(id, steps, counts),
    streamed: tokenMs => adapter.streamed(tokenMs),
    artifactChanged: cause => adapter.artifactChanged(cause),
    held: hold => adapter.held(hold),
    view: () => adapter.view(),
    swap: () => adapter.swap(),
    undo: () => adapter.undo(),
    close() {
      clearInterval(timer)
      adapter.close()
    },
  }
}
