/** Settings of gateways that know of each other. */
import { z } from 'zod'
import { address, file, ms, text, whole } from './schema-parts.ts'
import { STORE_EXAMPLE, wrongStore } from '../store-url.ts'

const MIB = 1_048_576

export const replicas = z.strictObject({
  url: address(STORE_EXAMPLE, wrongStore)
    .optional()
    .describe(
      `Redis or Valkey through which gateways before the same workers know of each other, such as ${STORE_EXAMPLE}; redis, rediss, valkey and valkeys are known. A password in it is masked. Without it this gateway is alone.`,
    ),
  caFile: file('a PEM file with certificates')
    .optional()
    .describe('Authority of the store’s certificate, PEM.'),
  id: text('1 to 64 letters, digits or any of . : _ -', /^[\w.:-]{1,64}$/)
    .optional()
    .describe('Name of this gateway among its replicas, unique; made up at each start unless told.'),
  namespace: text('1 to 64 letters, digits or any of . : _ -', /^[\w.:-]{1,64}$/)
    .default('eldr')
    .describe('Gateways with the same one are replicas of each other; names in the store begin with it.'),
  publishMs: ms().default(5).describe('What changed is told so long after it did, together.'),
  unionMs: ms().default(20).describe('Between two tellings of the experts that union expects on workers.'),
  bytesPerSecond: whole(1024, 1024 * MIB)
    .default(8 * MIB)
    .describe('They are told less often where they would be more than this.'),
  leaseMs: whole(100, 60_000)
    .default(3_000)
    .describe(
      'A replica that is not heard of for so long is taken for dead, and its requests with it. It speaks three times within it.',
    ),
  timeoutMs: ms()
    .default(2_000)
    .describe('The store must answer within this time; else it is given up and tried anew.'),
  retryMs: ms()
    .default(250)
    .describe('Wait after the store failed; doubled each time, at most 5 s, and varied by chance.'),
  changesKeptMs: ms()
    .default(600_000)
    .describe('What was changed by the admin API holds so long after the last replica has ended.'),
  artifactBytes: whole(0, 512 * MIB)
    .default(16 * MIB)
    .describe(
      'Artifacts up to this size go through the store to replicas that do not have the file; 0: none.',
    ),
})
