import { expect, it } from 'vitest'
import { startFakeWorker } from '../fake-worker/index.ts'
import { startCluster } from './cluster.ts'

it('a worker whose metrics route hangs becomes ready', async () => {
  const cluster = await startCluster({ decode: 1 })
  const { registry } = cluster.gateway.context
  const hung = await startFakeWorker({ role: 'decode', prefills: cluster.prefills })
  hung.fail({ kind: 'hang', after: 'request' }, { match: ({ path }) => path === '/metrics' })
  const ready = new Promise<void>(resolve => {
    registry.subscribe(({ kind, worker }) => {
      if (kind === 'healthy' && worker.id === 'hung') resolve()
    })
  })
  expect(registry.add({ id: 'hung', role: 'decode', url: hung.url })).toBe('added')
  await ready
  expect(registry.candidates('decode', performance.now()).map(({ id }) => id)).toContain('hung')
  await cluster.stop()
  await hung.close()
})
