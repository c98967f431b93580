/** What anybody who may look can see: the last decisions, one request, the configuration. */
import { VERSION } from '../../../version.ts'
import { Refusal } from '../../http/refusal.ts'
import { masked } from '../../config/mask.ts'
import type { Stories } from '../../observe/insight/stories.ts'
import type { Story } from '../../observe/insight/story.ts'
import type { Exchange } from '../../http/exchange.ts'
import { bad } from './read-json.ts'
import type { AdminParts, SeenRequest } from './admin-context.ts'
import type { AdminRoute } from './routes.ts'

const DECISIONS_SHOWN = 50

/** What this process knows of a request: clients choose ids, so that several may have the same. */
export function seenHere(
  id: string,
  live: Iterable<Exchange>,
  stories: Pick<Stories, 'find' | 'of'>,
): SeenRequest & { readonly told?: Story } {
  const underWay = [...live].filter(
    exchange => exchange.id === id && !exchange.request.url?.startsWith('/eldr/'),
  )
  const latest = underWay.at(-1)
  const told = (latest && stories.of(latest)) ?? stories.find(id)
  const shown = underWay.map(({ request, startedMs }) => ({
    path: request.url?.split('?', 1)[0],
    seconds: Number(((performance.now() - startedMs) / 1000).toFixed(3)),
  }))
  return { live: shown, ...(told && { told, story: told.view() }) }
}

export function lookRoutes({ ctx, control, live, elsewhere }: AdminParts): AdminRoute[] {
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
      async run({ id }) {
        const here = seenHere(id, live(), insight.stories)
        const others = (await elsewhere?.request(id)) ?? []
        const logged = router.decisionsOf(id)
        // Of requests that watchers were shown more is known than of the others.
        const decisions = logged.length === 0 ? (here.told?.decisions.toReversed() ?? []) : logged
        const underWay = [here, ...others].flatMap(seen => seen.live)
        const story =
          here.story ??
          others.find(seen => seen.live.length > 0)?.story ??
          others.find(seen => seen.story)?.story
        if (underWay.length === 0 && decisions.length === 0 && story === undefined)
          throw new Refusal('ELDR_REQUEST_UNKNOWN')
        const body = {
          request: id,
          live: underWay,
          decodeWorkers: router.decodeWorkersOf(id),
          decisions,
          ...(story && { story }),
        }
        return { status: 200, body }
      },
    },
    {
      method: 'GET',
      path: '/eldr/config',
      run: () => ({
        status: 200,
        body: { version: VERSION, settings: masked(settings), routing: control.view() },
      }),
    },
  ]
}
