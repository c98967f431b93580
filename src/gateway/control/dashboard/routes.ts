/** What the dashboard's page asks for, and who may: readers need not be those who may change things. */
import type { IncomingMessage } from 'node:http'
import { POLICIES } from '../../../policy/decode-policy.ts'
import { PREFILL_POLICIES } from '../../../policy/prefill-policy.ts'
import { VERSION } from '../../../version.ts'
import { bad } from '../admin/read-json.ts'
import type { AdminRoute } from '../admin/routes.ts'
import type { ObserveSettings } from '../../config/settings.ts'
import type { SignaturePlane } from './signature-plane.ts'
import type { Welcome } from '../../observe/insight/wire.ts'
import type { ExpertsLook } from './worker-experts.ts'

/** Server-sent pulses; served as a stream, beside the table of routes. */
export const PULSE_PATH = '/eldr/pulse'

/** How the page learns what it may do: whoever asks is told that, and no more. */
const WELCOME_PATH = '/eldr/dashboard'
/** With `observe.dashboard: open` anybody may read these, and nothing else of the admin API. They hold no URL and no setting. */
const OPEN = /^\/eldr\/(pulse|experts|plane|requests\/[^/]+)$/

/** Whether reading needs no leave. */
export function isOpenPath(path: string, dashboard: Dashboard): boolean {
  if (dashboard === 'off') return false
  return path === WELCOME_PATH || (dashboard === 'open' && OPEN.test(path))
}

type Dashboard = ObserveSettings['dashboard']

export interface DashboardParts {
  readonly dashboard: Dashboard
  readonly tokenSet: boolean
  readonly plane: SignaturePlane
  readonly experts: ExpertsLook
  mayChange(request: IncomingMessage): boolean
}

const STARTED_MS = Math.round(performance.timeOrigin)

export function dashboardRoutes({
  dashboard,
  tokenSet,
  plane,
  experts,
  mayChange,
}: DashboardParts): AdminRoute[] {
  return [
    {
      method: 'GET',
      path: WELCOME_PATH,
      run({ exchange }) {
        const access = mayChange(exchange.request) ? 'change' : dashboard === 'open' ? 'read' : 'none'
        const more =
          access === 'none'
            ? {}
            : { startedMs: STARTED_MS, policies: POLICIES, prefillPolicies: PREFILL_POLICIES }
        return { status: 200, body: { version: VERSION, access, tokenSet, ...more } satisfies Welcome }
      },
    },
    {
      method: 'GET',
      path: '/eldr/experts',
      async run({ query }) {
        const expected = query.get('expected') ?? '0'
        if (expected !== '0' && expected !== '1') throw bad('expected must be 0 or 1.', 'expected')
        return { status: 200, body: await experts.view(expected === '1') }
      },
    },
    {
      method: 'GET',
      path: '/eldr/plane',
      run: async () => ({ status: 200, body: { plane: (await plane.view()) ?? null } }),
    },
  ]
}
