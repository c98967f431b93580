/**
 * An engine unlike vLLM, to try the seam for engines with: prefill pushes its KV cache to a decode worker
 * that must be chosen before, counts stand at the top of its response, and a rank is chosen by a field of the
 * body. test/fake-worker speaks it as `protocol: 'push'`.
 */
import type { WorkerSpec } from '../../src/cluster/worker.ts'
import type { EngineAdapter, HandoffResult } from '../../src/gateway/engines/engine.ts'
import { countsOf, valueOf } from '../../src/gateway/engines/handoff-counts.ts'
import { type ClientRequest, last } from '../../src/gateway/http/client-request.ts'
import { editObject } from '../../src/gateway/json/edit.ts'
import { scanObject } from '../../src/gateway/json/scan.ts'

export function pushEngine(): EngineAdapter {
  return {
    name: 'push',
    legOrder: 'decode_before_prefill',
    reservedFields: ['push_kv', 'pushed_kv', 'rank'],
    passedHeaders: [],

    prefillBody({ body, members }, worker, decode) {
      if (decode === undefined) throw new Error('prefill before a decode worker was chosen')
      const to = JSON.stringify({ to: decode.url })
      return editObject(body, members, { push_kv: to, ...rankOf(worker), ...oneToken(members) })
    },

    readHandoff(response): HandoffResult {
      const members = scanObject(response) ?? []
      const pushed = valueOf(response, last(members, 'pushed')) as { id?: unknown } | undefined
      if (typeof pushed?.id !== 'string') return { kind: 'invalid', why: 'nothing was pushed' }
      const usage = valueOf(response, last(members, 'usage')) as { prompt_tokens?: number } | undefined
      return {
        kind: 'handed_off',
        handoff: {
          transfer: Buffer.from(JSON.stringify(pushed.id)),
          counts: countsOf(response, last(members, 'experts')),
          routedExperts: undefined,
          engineId: undefined,
          promptTokens: usage?.prompt_tokens,
        },
      }
    },

    decodeBody: ({ body, members }, { transfer }, worker) =>
      editObject(body, members, { pushed_kv: transfer, ...rankOf(worker) }),
    releaseBody: ({ body, members }, { transfer }, worker) =>
      editObject(body, members, { pushed_kv: transfer, ...rankOf(worker), ...oneToken(members) }),
    cleanResponse: ({ body }) => body,
    rankHeaders: () => undefined,
    missingRank: () => undefined,
  }
}

const rankOf = ({ dpRank }: WorkerSpec) => (dpRank === undefined ? {} : { rank: String(dpRank) })

const oneToken = (members: ClientRequest['members']) => ({
  stream: 'false',
  max_tokens: '1',
  stream_options: undefined,
  min_tokens: undefined,
  ...(last(members, 'max_completion_tokens') !== undefined && { max_completion_tokens: '1' }),
})
