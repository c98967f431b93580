/** Schema of the settings in GET /eldr/config: that of the file, after `settle.ts` and `mask.ts`. */
import * as z from 'zod'
import { POLICIES } from '../../../policy/decode-policy.ts'
import { PREFILL_POLICIES } from '../../../policy/prefill-policy.ts'
import { fileSchema } from '../../config/schema/schema.ts'
import type { Json, JsonObject } from './operation.ts'

interface Node {
  type?: string
  properties?: Record<string, Node>
  required?: string[]
  items?: JsonObject
  [key: string]: unknown
}

const WORKER = {
  type: 'object',
  properties: {
    url: { type: 'string', format: 'uri' },
    id: { type: 'string' },
    cluster: { type: 'integer', minimum: 0 },
  },
  required: ['url', 'id'],
  additionalProperties: false,
}

export function settingsSchema(): JsonObject {
  const schema = z.toJSONSchema(fileSchema, {
    io: 'output',
    override: ({ jsonSchema }) => {
      // Secrets are shown masked, and all defaults are set.
      delete jsonSchema.writeOnly
      delete jsonSchema.default
    },
  }) as unknown as Node
  const { $schema: _dialect, ...settings } = schema
  const properties = settings.properties!
  delete properties['$schema']
  for (const role of ['prefill', 'decode']) properties['workers']!.properties![role]!.items = WORKER
  const routing = properties['routing']!
  const one = (names: readonly string[]) => ({ type: 'string', enum: [...names] })
  Object.assign(routing.properties!, { policy: one(POLICIES), prefillPolicy: one(PREFILL_POLICIES) })
  return { ...(settings as Record<string, Json>), description: 'Current settings, with secrets masked.' }
}
