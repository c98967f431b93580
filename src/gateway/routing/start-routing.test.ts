import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pino } from 'pino'
import { afterAll, describe, expect, it } from 'vitest'
import { shipped } from '../../../test/data.ts'
import { smallArtifact } from '../../../test/gateway/admin-support.ts'
import { failure, temporaryFolder } from '../../../test/trace-support.ts'
import { Registry } from '../../cluster/registry.ts'
import { LoadTracker } from '../../cluster/tickets.ts'
import { stepParts } from '../../cost/profile.ts'
import { loadProfile } from '../../cost/profile-file.ts'
import { descriptorOf, readsCounts } from '../../policy/decode-policy.ts'
import { Decisions } from '../observe/decisions.ts'
import { fileSchema } from '../config/schema/schema.ts'
import { settle } from '../config/settle.ts'
import { RateLimitedLog } from '../observe/log/log.ts'
import { logRejectedCounts } from '../observe/log/rejected-counts.ts'
import { Metrics } from '../observe/metrics/metrics.ts'
import { readRoutingFiles, startRouting } from './start-routing.ts'

const folder = temporaryFolder()
afterAll(() => folder.remove())

const settingsOf = (routing: object) =>
  settle(fileSchema.parse({ routing, workers: { decode: ['http://a:1', 'http://b:1'] } }))

async function start(routing: object) {
  const settings = settingsOf(routing)
  const registry = new Registry(new LoadTracker(), settings.breaker)
  registry.addAll(settings.workers.decode.map(worker => ({ ...worker, role: 'decode' as const })))
  for (const { id } of settings.workers.decode) registry.setHealth(id, true)
  const lines: Record<string, unknown>[] = []
  const log = pino(
    { base: null },
    { write: (line: string) => void lines.push(JSON.parse(line) as Record<string, unknown>) },
  )
  const metrics = new Metrics()
  const decisions = new Decisions({
    metrics,
    kept: 0,
    rejected: logRejectedCounts(log, new RateLimitedLog(), () => readsCounts(descriptorOf(control.policy))),
  })
  const { control, router } = startRouting(settings, await readRoutingFiles(settings), {
    registry,
    decisions,
    log,
    changed: () => {},
  })
  return { control, router, lines, metrics }
}

describe('routing from settings', () => {
  it('takes the costs of union from the configured profile', async () => {
    expect(await readRoutingFiles(settingsOf({}))).toEqual({})
    const { cost } = await readRoutingFiles(settingsOf({ policy: 'union', profile: 'h200-first' }))
    expect(cost).toEqual(stepParts(await loadProfile('h200-first')))
    const unknown = await failure('', () => readRoutingFiles(settingsOf({ profile: 'unknown' })))
    expect(unknown.message).toContain('h200-first')
  })

  it('fails with the reason if the file is not an artifact, or the policy needs one', async () => {
    const file = join(folder.path, 'text')
    writeFileSync(file, 'this is a text')
    expect((await failure(file, () => readRoutingFiles(settingsOf({ artifact: file })))).code).toBe(
      'ELDR_FILE_NOT_SAFETENSORS',
    )
    const trace = shipped('tiny6-long-task.calibration')
    expect((await failure(trace, () => readRoutingFiles(settingsOf({ artifact: trace })))).code).toBe(
      'ELDR_FILE_WRONG_KIND',
    )
    expect((await failure('--artifact', () => start({ policy: 'eldr' }))).code).toBe('ELDR_USAGE')
  })

  it('warns at the start and after changes if τ is too small for the bound of eldr', async () => {
    const { path } = await smallArtifact(folder.path, 2)
    const { control, lines } = await start({ policy: 'eldr', tau: 0.02, artifact: path })
    const warned = () =>
      lines
        .filter(({ msg }) => String(msg).startsWith('tau is too small'))
        .map(({ level, tau }) => [level, tau])
    expect(warned()).toEqual([[40, 0.02]])
    control.setPolicy({ tau: 0.05 })
    control.setPolicy({ policy: 'band', tau: 0 })
    expect(warned()).toHaveLength(1)
    control.setPolicy({ policy: 'eldr' })
    control.setPolicy({ prefillPolicy: 'round_robin' })
    expect(warned()).toEqual([
      [40, 0.02],
      [40, 0],
    ])
    control.close()
  })

  it('logs rejected counts once per minute and reason, not for every request', async () => {
    const { router, control, lines, metrics } = await start({ policy: 'union' })
    const bad = {
      counts: Buffer.from('{"v":2,"layers":2,"experts":8,"top_k":2}'),
      routedExperts: undefined,
      promptTokens: 3,
    }
    for (let n = 0; n < 20; n++) router.toDecode(`r${n}`, bad, 1, new Set())
    router.toDecode('none', { ...bad, counts: undefined }, 1, new Set())
    router.toDecode('direct', undefined, 1, new Set())
    const logged = lines.filter(({ reason }) => reason !== undefined)
    expect(logged.map(({ reason, reqId }) => [reason, reqId])).toEqual([
      ['wrong_version', 'r0'],
      ['missing', 'none'],
    ])
    const { values } = await metrics.rejects.get()
    const risen = values.filter(({ value }) => value > 0)
    expect(risen.map(({ labels, value }) => [labels['reason'], value])).toEqual([
      ['missing', 1],
      ['wrong_version', 20],
    ])
    control.setPolicy({ policy: 'jsq' })
    router.toDecode('by load', { ...bad, counts: Buffer.from('{"v":1}') }, 1, new Set())
    expect(lines.filter(({ reason }) => reason !== undefined)).toHaveLength(2)
  })
})
