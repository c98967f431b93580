/**
 * An engine unlike vLLM, to try the seam for engines with: prefill pushes its KV cache to a decode worker
 * that must be chosen before, counts stand at the top of its response, and a rank is chosen by a field of the
 * body. test/fake-worker speaks it as `protocol: 'push'`.
 */
import type { WorkerSpec } from '../../src/cluster/worker.ts'
import type { EngineAdapter, HandoffResult } from '../../src/gateway/engines/engine.ts'
import { countsBytes, valueOf } from '../../src/gateway/engines/handoff-counts.ts'
import { type ClientRequest, last } from '../../src/gateway/http/client-request.ts'
import { editObject } from '../../src/gateway/json/edit.ts'
import { scanObject } from '../../src/gateway/json/scan.ts'

export function pushEngine(): EngineAdapter {
  return {
    name: 'push',
    legOrder: 'decode_before_prefill',
    reservedFields: ['push_kv', 'pushed_kv', 'rank'],
    tokenLimits: { chat: ['max_completion_tokens', 'max_tokens'], completions: ['max_tokens'] },
    passedHeaders: [],
    privateFields: { response: ['pushed', 'experts'], event: ['pushed'] },

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
          counts: countsBytes(response, last(members, 'experts')),
          routedExperts: undefined,
          engineId: undefined,
          promptTokens: usage?.prompt_tokens,
        },
      }
    },

    decodeBody: ({ body, members }, { transfer }, worker) =>
      editObject(body, members, { pushed_kv: transfer, ...rankOf(worker) }),
    aloneBody: ({ body, members }, worker) =>
      worker.dpRank === undefined ? body : editObject(body, members, rankOf(worker)),

    // A decode worker that refuses frees what was pushed to it.
    handoffAfter: ({ kind, status, sent }) =>
      kind === 'served'
        ? status === 200
          ? 'used'
          : 'refused'
        : sent !== true
          ? 'unseen'
          : status === 500
            ? 'missed'
            : 'used',
    releaseRequest({ request: { body, members }, path, handoff: { transfer }, decode }) {
      if (decode === undefined) return undefined
      const release = editObject(body, members, {
        pushed_kv: transfer,
        ...rankOf(decode),
        ...oneToken(members),
      })
      return { worker: decode, path, body: release, abortAfterMs: 500 }
    },
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
