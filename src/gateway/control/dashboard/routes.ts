/** Data routes of the dashboard, and which of them need no authentication. */
import type { IncomingMessage } from 'node:http'
import { POLICIES } from '../../../policy/decode-policy.ts'
import { PREFILL_POLICIES } from '../../../policy/prefill-policy.ts'
import { VERSION } from '../../../version.ts'
import { badRequest } from '../admin/read-json.ts'
import type { AdminRoute } from '../admin/routes.ts'
import type { ObserveSettings } from '../../config/settings.ts'
import type { SignaturePlane } from './signature-plane.ts'
import type { Welcome } from '../../observe/insight/wire.ts'
import type { WorkerExpertsReader } from './worker-experts.ts'

/** Stream of pulses; not in the table of routes. */
export const PULSE_PATH = '/eldr/pulse'

/** Tells the page what the client may do. Needs no authentication. */
const WELCOME_PATH = '/eldr/dashboard'
/** Readable without authentication if `observe.dashboard` is open. They contain no URLs and no settings. */
const OPEN = /^\/eldr\/(pulse|experts|plane|adapt|shadow|experiment|requests\/[^/]+)$/

/** True if reading needs no authentication. */
export function isOpenPath(path: string, dashboard: Dashboard): boolean {
  if (dashboard === 'off') return false
  return path === WELCOME_PATH || (dashboard === 'open' && OPEN.test(path))
}

type Dashboard = ObserveSettings['dashboard']

export interface DashboardParts {
  readonly dashboard: Dashboard
  readonly tokenSet: boolean
  readonly plane: SignaturePlane
  readonly experts: WorkerExpertsReader
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
        if (expected !== '0' && expected !== '1') throw badRequest('expected must be 0 or 1.', 'expected')
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
