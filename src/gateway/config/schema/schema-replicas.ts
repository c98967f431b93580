/** Settings of gateway replicas. */
import { z } from 'zod'
import { address, file, ms, text, whole } from './schema-parts.ts'
import { STORE_EXAMPLE, storeUrlProblem } from '../store-url.ts'

const MIB = 1_048_576

export const replicas = z.strictObject({
  url: address(STORE_EXAMPLE, storeUrlProblem)
    .optional()
    .describe(
      `Redis or Valkey store shared by all gateways of the same workers, such as ${STORE_EXAMPLE}. Schemes: redis, rediss, valkey, valkeys. The password is masked. Without it, this gateway does not share state.`,
    ),
  caFile: file('a PEM file with certificates').optional().describe('CA of the store’s certificate (PEM).'),
  id: text('1 to 64 letters, digits or any of . : _ -', /^[\w.:-]{1,64}$/)
    .optional()
    .describe('Unique name of this gateway. Default: random.'),
  namespace: text('1 to 64 letters, digits or any of . : _ -', /^[\w.:-]{1,64}$/)
    .default('eldr')
    .describe(
      'Prefix of all names in the store. Gateways with the same namespace are replicas of each other.',
    ),
  publishMs: ms().default(5).describe('Delay before changes are published, so that they are sent together.'),
  unionMs: ms().default(20).describe('Interval for publishing the experts that union expects on workers.'),
  bytesPerSecond: whole(1024, 1024 * MIB)
    .default(8 * MIB)
    .describe('Max rate of published expert data. Above it, updates are sent less often.'),
  leaseMs: whole(100, 60_000)
    .default(3_000)
    .describe(
      'A replica that is silent for this long is considered dead and its requests ended. Each replica sends three heartbeats in this time.',
    ),
  timeoutMs: ms().default(2_000).describe('Timeout of a store operation. After it, the gateway reconnects.'),
  retryMs: ms()
    .default(250)
    .describe(
      'Wait before reconnecting to the store. It doubles with each failure, up to 5 s, with random jitter.',
    ),
  changesKeptMs: ms()
    .default(600_000)
    .describe('How long changes made through the admin API are kept after the last replica has stopped.'),
  artifactBytes: whole(0, 512 * MIB)
    .default(16 * MIB)
    .describe(
      'Max size of an artifact that is sent through the store to replicas that do not have the file. 0: never.',
    ),
})
