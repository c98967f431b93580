import type { IncomingMessage } from 'node:http'
import { describe, expect, it } from 'vitest'
import type { AdaptView } from '../../observe/insight/wire.ts'
import { adaptRoutes } from './adapt-routes.ts'
import type { AdminCall } from './routes.ts'

const view: AdaptView = {
  mode: 'on',
  state: 'steady',
  problem: '/srv/secret: not writable',
  last: { atMs: 1, seconds: 1, verdict: 'failed', problem: '/srv/secret/swap: no space' },
  suggestion: false,
  swaps: [
    {
      atMs: 1,
      file: '/srv/secret/swap-1.artifact.safetensors',
      sha256: 'a'.repeat(64),
      parentSha256: 'b'.repeat(64),
      state: 'past',
      sampleRequests: 1,
      heldOutRequests: 1,
      gain: 0.1,
      gainHalf: 0.01,
      judgedBy: 'predicted',
    },
  ],
}

describe('GET /eldr/adapt', () => {
  const bodyFor = async (mayChange: boolean) => {
    const never = async () => ({ kind: 'ok' }) as const
    const [route] = adaptRoutes({ adapt: { view: () => view, swap: never, undo: never } }, () => mayChange)
    return (await route!.run({ exchange: { request: {} as IncomingMessage } } as unknown as AdminCall)).body
  }

  it('shows paths to operators, and no folder to readers of an open dashboard', async () => {
    expect(await bodyFor(true)).toEqual(view)
    const open = (await bodyFor(false)) as AdaptView
    expect(JSON.stringify(open)).not.toContain('/srv')
    expect(open.swaps[0]!.file).toBe('swap-1.artifact.safetensors')
    expect(open).toMatchObject({ problem: expect.stringContaining('See the log') })
  })
})
