/** Switchback experiments: a client starts one, switches its slots and ends it. */
import { POLICIES } from '../../../policy/decode-policy.ts'
import { tauOf } from './routing-routes.ts'
import { badRequest, type Fields, nameOf, readFields, wholeOf } from './read-json.ts'
import type { AdminParts } from './admin-context.ts'
import type { AdminRoute } from './routes.ts'

export const LEASE_MS = { min: 100, max: 600_000, default: 10_000 } as const
/** An hour. */
export const MAX_WASHOUT_MS = 3_600_000
export const MAX_SLOT = 1_000_000

export function experimentRoutes({ experiments }: AdminParts): AdminRoute[] {
  return [
    { method: 'GET', path: '/eldr/experiment', run: () => ({ status: 200, body: experiments.view() }) },
    {
      method: 'POST',
      path: '/eldr/experiment',
      async run({ exchange, proceed }) {
        const fields = await readFields(exchange, proceed, ['policies', 'leaseMs'])
        const leaseMs = wholeOf(fields, 'leaseMs', LEASE_MS.min, LEASE_MS.max) ?? LEASE_MS.default
        return { status: 201, body: experiments.start(policiesOf(fields), leaseMs) }
      },
    },
    {
      method: 'PUT',
      path: '/eldr/experiment/{id}',
      async run({ exchange, proceed, id }) {
        const fields = await readFields(exchange, proceed, ['policy', 'tau', 'washoutMs', 'slot'])
        const policy = nameOf(fields, 'policy', POLICIES)
        const tau = tauOf(fields)
        const washoutMs = wholeOf(fields, 'washoutMs', 0, MAX_WASHOUT_MS) ?? 0
        const slot = wholeOf(fields, 'slot', 1, MAX_SLOT)
        if (policy === undefined && Object.keys(fields).length > 0)
          throw badRequest(
            'policy is missing: a slot needs one. To renew the lease, send no fields.',
            'policy',
          )
        return { status: 200, body: experiments.continue(id, policy && { policy, tau, washoutMs, slot }) }
      },
    },
    {
      method: 'DELETE',
      path: '/eldr/experiment/{id}',
      run: ({ id }) => ({ status: 200, body: experiments.end(id) }),
    },
  ]
}

function policiesOf({ policies }: Fields) {
  const names = Array.isArray(policies)
    ? [...new Set(policies.map(policy => nameOf({ policies: policy }, 'policies', POLICIES)))]
    : []
  const given = names.filter(name => name !== undefined)
  if (given.length > 0) return given
  throw badRequest('policies must be a list of policy names.', 'policies')
}
