/** Reads and changes the log level at runtime. */
import { LOG_LEVELS } from '../../config/settings.ts'
import { badRequest, nameOf, readFields, wholeOf } from './read-json.ts'
import type { AdminParts } from './admin-context.ts'
import type { AdminRoute } from './routes.ts'

/** One day. */
export const MAX_LEVEL_MS = 86_400_000

export function logRoutes({ ctx: { logLevel } }: AdminParts): AdminRoute[] {
  return [
    { method: 'GET', path: '/eldr/log-level', run: () => ({ status: 200, body: logLevel.view() }) },
    {
      method: 'PUT',
      path: '/eldr/log-level',
      async run({ exchange, proceed }) {
        const fields = await readFields(exchange, proceed, ['level', 'forMs'])
        const level = nameOf(fields, 'level', LOG_LEVELS)
        const forMs = wholeOf(fields, 'forMs', 1, MAX_LEVEL_MS)
        if (level === undefined)
          throw badRequest(`level is missing: expected one of ${LOG_LEVELS.join(', ')}.`, 'level')
        return { status: 200, body: logLevel.set(level, forMs) }
      },
    },
  ]
}
