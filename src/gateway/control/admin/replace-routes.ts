/** Replaces the gateway by a new process with the same command line, which reads its files again. */
import { EldrError } from '../../../errors.ts'
import { Refusal } from '../../http/refusal.ts'
import { readFields } from './read-json.ts'
import type { AdminParts } from './admin-context.ts'
import type { AdminRoute } from './routes.ts'

/** The new process. */
export interface Replaced {
  readonly pid: number
  readonly version: string
}

export const REPLACE_PATH = '/eldr/replace'

export function replaceRoutes({ replace }: Pick<AdminParts, 'replace'>): AdminRoute[] {
  return [
    {
      method: 'POST',
      path: REPLACE_PATH,
      async run({ exchange, proceed }) {
        await readFields(exchange, proceed, [])
        if (replace === undefined)
          throw new Refusal('ELDR_REPLACE_FAILED', { words: 'Only `eldr serve` can be replaced.' })
        try {
          return { status: 200, body: await replace() }
        } catch (error) {
          throw refusalOf(error)
        }
      },
    },
  ]
}

/** The client is an operator: the message may name files and settings. */
function refusalOf(error: unknown): Refusal {
  if (!(error instanceof EldrError)) throw error
  if (error.code === 'ELDR_REPLACE_RUNNING') return new Refusal('ELDR_REPLACING', { retryAfterSeconds: 1 })
  const problems = (error.detail.problems ?? []).join(' ')
  return new Refusal('ELDR_REPLACE_FAILED', {
    words: `The gateway was not replaced and continues to serve. ${[problems, error.message].filter(Boolean).join(' ')}`,
  })
}
