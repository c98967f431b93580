/** Read-only routes: recent decisions, one request, the configuration. */
import { VERSION } from '../../../version.ts'
import { Refusal } from '../../http/refusal.ts'
import { masked } from '../../config/mask.ts'
import type { Stories } from '../../observe/insight/stories.ts'
import type { Story } from '../../observe/insight/story.ts'
import type { Exchange } from '../../http/exchange.ts'
import { badRequest } from './read-json.ts'
import type { AdminParts, SeenRequest } from './admin-context.ts'
import type { AdminRoute } from './routes.ts'

const DECISIONS_SHOWN = 50

/** What this process knows about a request. Clients choose ids, so several requests may have the same one. */
export function seenHere(
  id: string,
  live: Iterable<Exchange>,
  stories: Pick<Stories, 'find' | 'runningStory'>,
): SeenRequest & { readonly history?: Story } {
  const running = [...live].filter(
    exchange => exchange.id === id && !exchange.request.url?.startsWith('/eldr/'),
  )
  const latest = running.at(-1)
  const history = (latest && stories.runningStory(latest)) ?? stories.find(id)
  const shown = running.map(({ request, startedMs }) => ({
    path: request.url?.split('?', 1)[0],
    seconds: Number(((performance.now() - startedMs) / 1000).toFixed(3)),
  }))
  return { live: shown, history, story: history?.view() }
}

export function lookRoutes({ ctx, control, live, elsewhere, shadow }: AdminParts): AdminRoute[] {
  const { router, settings, insight } = ctx
  return [
    {
      method: 'GET',
      path: '/eldr/decisions',
      run({ query }) {
        const limit = query.get('limit') ?? String(DECISIONS_SHOWN)
        if (!/^[1-9]\d{0,5}$/.test(limit))
          throw badRequest('limit must be a whole number from 1 to 999999.', 'limit')
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
        // The story of a request may have decisions that are no longer in the log.
        const decisions = logged.length === 0 ? (here.history?.decisions.toReversed() ?? []) : logged
        const running = [here, ...others].flatMap(seen => seen.live)
        const story =
          here.story ??
          others.find(seen => seen.live.length > 0)?.story ??
          others.find(seen => seen.story)?.story
        if (running.length === 0 && decisions.length === 0 && story === undefined)
          throw new Refusal('ELDR_REQUEST_UNKNOWN')
        const body = {
          request: id,
          live: running,
          decodeWorkers: router.decodeWorkersOf(id),
          decisions,
          story,
        }
        return { status: 200, body }
      },
    },
    { method: 'GET', path: '/eldr/shadow', run: () => ({ status: 200, body: shadow.view() }) },
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
