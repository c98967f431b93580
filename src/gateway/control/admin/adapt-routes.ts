/** Live recalibration: what it sees, and swapping and undoing by hand. */
import type { IncomingMessage } from 'node:http'
import { basename } from 'node:path'
import { Refusal } from '../../http/refusal.ts'
import type { AdaptView } from '../../observe/insight/wire.ts'
import type { AdaptControl, AdaptResult, AdminParts } from './admin-context.ts'
import { readFields } from './read-json.ts'
import type { AdminRoute } from './routes.ts'

const OFF: AdaptView = { mode: 'off', state: 'off', suggestion: false, swaps: [] }

export function adaptRoutes(
  { adapt }: Pick<AdminParts, 'adapt'>,
  mayChange: (request: IncomingMessage) => boolean,
): AdminRoute[] {
  const changing = (path: string, change: (adapt: AdaptControl) => Promise<AdaptResult>): AdminRoute => ({
    method: 'POST',
    path,
    async run({ exchange, proceed }) {
      await readFields(exchange, proceed, [])
      if (adapt === undefined)
        throw new Refusal('ELDR_ADAPT_REFUSED', { words: 'Live recalibration is off: set adapt.mode.' })
      const result = await change(adapt)
      if (result.kind === 'refused') throw new Refusal('ELDR_ADAPT_REFUSED', { words: result.why })
      return { status: 200, body: adapt.view() }
    },
  })
  return [
    {
      method: 'GET',
      path: '/eldr/adapt',
      run({ exchange }) {
        const view = adapt?.view() ?? OFF
        return { status: 200, body: mayChange(exchange.request) ? view : withoutPaths(view) }
      },
    },
    changing('/eldr/adapt/swap', each => each.swap()),
    changing('/eldr/adapt/undo', each => each.undo()),
  ]
}

/** For readers of an open dashboard: problems may name files, which only operators see. */
function withoutPaths(view: AdaptView): AdaptView {
  const { problem, last, swaps } = view
  const hidden = 'See the log of the gateway.'
  return {
    ...view,
    ...(problem !== undefined && { problem: `No swap can be made. ${hidden}` }),
    ...(last?.problem !== undefined && { last: { ...last, problem: hidden } }),
    swaps: swaps.map(swap => ({ ...swap, file: basename(swap.file) })),
  }
}
