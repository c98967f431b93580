/** What anybody who may look can see: the last decisions, one request, the configuration. */
import { VERSION } from '../../version.ts'
import { Refusal } from '../answers.ts'
import { masked } from '../config/mask.ts'
import { bad } from './read-json.ts'
import type { AdminParts, AdminRoute } from './routes.ts'

const DECISIONS_SHOWN = 50

export function lookRoutes({ ctx, control, live }: AdminParts): AdminRoute[] {
  const { router, settings, insight } = ctx
  return [
    {
      method: 'GET',
      path: '/eldr/decisions',
      run({ query }) {
        const limit = query.get('limit') ?? String(DECISIONS_SHOWN)
        if (!/^[1-9]\d{0,5}$/.test(limit)) throw bad('limit must be a whole number above 0.', 'limit')
        return { status: 200, body: { decisions: router.decisions(Number(limit)) } }
      },
    },
    {
      method: 'GET',
      path: '/eldr/requests/{id}',
      run({ id }) {
        // Clients choose ids, so that several may have the same.
        const underWay = [...live()].filter(exchange => exchange.id === id && !exchange.request.url?.startsWith('/eldr/'))
        const logged = router.decisionsOf(id)
        const story = underWay.at(-1)?.story ?? insight.stories.find(id)
        // Of requests that watchers were shown more is known than of the others.
        const decisions = logged.length === 0 ? (story?.decisions.toReversed() ?? []) : logged
        if (underWay.length === 0 && decisions.length === 0 && story === undefined) throw new Refusal('ELDR_REQUEST_UNKNOWN')
        const shown = underWay.map(({ request, startedMs }) => ({
          path: request.url?.split('?', 1)[0],
          seconds: Number(((performance.now() - startedMs) / 1000).toFixed(3)),
        }))
        const body = {
          request: id,
          live: shown,
          decodeWorkers: router.decodeWorkersOf(id),
          decisions,
          ...(story && { story: story.view() }),
        }
        return { status: 200, body }
      },
    },
    {
      method: 'GET',
      path: '/eldr/config',
      run: () => ({ status: 200, body: { version: VERSION, settings: masked(settings), routing: control.view() } }),
    },
  ]
}
