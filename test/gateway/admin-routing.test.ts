import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { temporaryFolder } from '../trace-support.ts'
import { call, errorOf, smallArtifact } from './admin-support.ts'
import { type Cluster, type ClusterOptions, eventsOf, SHAPE, startCluster } from './cluster.ts'

const folder = temporaryFolder()
let [two, three, other] = ['', '', '']
beforeAll(async () => {
  two = (await smallArtifact(folder.path, 2)).path
  three = (await smallArtifact(folder.path, 3)).path
  other = (await smallArtifact(folder.path, 2, { layers: 3, experts: 8, topK: 2 })).path
})
afterAll(() => folder.remove())

let cluster: Cluster
const start = async (options: ClusterOptions = {}) => void (cluster = await startCluster(options))
afterEach(() => cluster.stop())

const ask = async (body: object = {}) => {
  const response = await cluster.post('/v1/completions', {
    prompt: 'a b c d e f g h',
    max_tokens: 2,
    ...body,
  })
  expect(response.status).toBe(200)
  return response
}
const lastDecision = async () => (await call(cluster, 'GET', '/eldr/decisions?limit=1')).json.decisions[0]
const routing = async () => (await call(cluster, 'GET', '/eldr/config')).json.routing

describe('PUT /eldr/policy', () => {
  it('changes the policy of the next decisions, and their label', async () => {
    await start({ config: { routing: { policy: 'eldr', artifact: two } } })
    await (await ask()).text()
    expect(await lastDecision()).toMatchObject({ policy: 'eldr', reason: expect.stringMatching('^match_') })
    for (const policy of ['union', 'power-of-two', 'jsq', 'eldr']) {
      const name = policy.replaceAll('-', '_')
      expect((await call(cluster, 'PUT', '/eldr/policy', { policy })).json).toMatchObject({
        policy: name,
        tau: 0.1,
      })
      await (await ask()).text()
      expect(await lastDecision()).toMatchObject({ policy: name })
      expect(await (await fetch(`${cluster.url}/metrics`)).text()).toContain(
        `eldr_decisions_total{policy="${name}"`,
      )
    }
    await cluster.idle()
  })

  it('changes τ, and with it the number of workers in the band', async () => {
    await start({ config: { routing: { policy: 'band', artifact: two, tau: 0 } } })
    await (await ask()).text()
    expect((await lastDecision()).band).toBe(1)
    expect((await call(cluster, 'PUT', '/eldr/policy', { tau: 2 })).json.tau).toBe(2)
    await (await ask()).text()
    expect((await lastDecision()).band).toBe(2)
  })

  it('applies a change completely or not at all', async () => {
    await start()
    const before = await routing()
    expect(
      errorOf(
        await call(cluster, 'PUT', '/eldr/policy', {
          policy: 'eldr',
          tau: 0.5,
          prefillPolicy: 'least_loaded',
        }),
      ),
    ).toBe('409 ELDR_POLICY_LACKS')
    for (const body of [
      {},
      { policy: 'best' },
      { tau: 3 },
      { tau: '0.1' },
      { policy: 'jsq', tua: 1 },
      { prefillPolicy: 1 },
    ])
      expect(errorOf(await call(cluster, 'PUT', '/eldr/policy', body))).toBe('400 ELDR_BAD_REQUEST')
    expect(await routing()).toEqual(before)
  })
})

describe('POST /eldr/artifact', () => {
  it('loads a file from the gateway’s disk, or an uploaded one', async () => {
    await start()
    expect(await call(cluster, 'POST', '/eldr/artifact', { path: two })).toMatchObject({
      status: 200,
      json: {
        policy: 'union',
        artifact: { file: two, clusters: 2, model: 'fake', sha256: expect.stringMatching(/^[\da-f]{64}$/) },
      },
    })
    const sent = await call(cluster, 'POST', '/eldr/artifact', readFileSync(three))
    expect(sent).toMatchObject({
      status: 200,
      json: { artifact: { file: 'the artifact that was sent', clusters: 3 } },
    })
    expect((await call(cluster, 'PUT', '/eldr/policy', { policy: 'eldr' })).status).toBe(200)
    await (await ask()).text()
    expect(await lastDecision()).toMatchObject({ policy: 'eldr' })
    await cluster.idle()
  })

  it('reports that an uploaded artifact cannot be saved, and changes nothing', async () => {
    await start({ config: { routing: { policy: 'eldr', artifact: two } } })
    const before = await routing()
    const usual = process.env['TMPDIR']
    process.env['TMPDIR'] = join(folder.path, 'nowhere')
    const answer = await call(cluster, 'POST', '/eldr/artifact', readFileSync(three)).finally(() =>
      usual === undefined ? delete process.env['TMPDIR'] : (process.env['TMPDIR'] = usual),
    )
    expect(errorOf(answer)).toBe('507 ELDR_ARTIFACT_UNSAVED')
    expect(answer.json.error.message).toContain('ELDR_FILE_UNWRITABLE')
    expect(await routing()).toEqual(before)
  })

  it('reports why a broken artifact cannot be used, and changes nothing', async () => {
    await start({ config: { routing: { policy: 'eldr', artifact: two } } })
    const before = await routing()
    const { table } = cluster.gateway.context.router
    const bytes = readFileSync(three)
    const cut = join(folder.path, 'cut.safetensors')
    writeFileSync(cut, bytes.subarray(0, bytes.length - 1))
    const text = join(folder.path, 'text.safetensors')
    writeFileSync(text, 'no artifact at all')
    const trace = join(folder.path, 'trace-2-2.safetensors')
    for (const [body, code] of [
      [{ path: cut }, 'ELDR_FILE_TRUNCATED'],
      [{ path: text }, 'ELDR_FILE_NOT_SAFETENSORS'],
      [{ path: trace }, 'ELDR_FILE_WRONG_KIND'],
      [{ path: folder.path }, 'ELDR_FILE_UNREADABLE'],
      [{ path: join(folder.path, 'nowhere') }, 'ELDR_FILE_UNREADABLE'],
      [bytes.subarray(0, 100), 'ELDR_FILE_'],
      [new Uint8Array(0), 'ELDR_FILE_'],
    ] as const) {
      const answer = await call(cluster, 'POST', '/eldr/artifact', body)
      expect(errorOf(answer)).toBe('422 ELDR_ARTIFACT_BAD')
      expect(answer.json.error.message).toContain(code)
      expect(answer.json.error.message).not.toContain('eldr-artifact-')
    }
    for (const body of [{}, { path: 1 }, { path: '' }, { path: 'a\0b' }, { file: two }])
      expect(errorOf(await call(cluster, 'POST', '/eldr/artifact', body))).toBe('400 ELDR_BAD_REQUEST')
    // As `curl -d` sends it.
    const form = await fetch(`${cluster.url}/eldr/artifact`, {
      method: 'POST',
      body: JSON.stringify({ path: three }),
    })
    expect([form.status, await form.text()]).toEqual([
      400,
      expect.stringContaining('content-type: application/json'),
    ])
    expect(await routing()).toEqual(before)
    expect(cluster.gateway.context.router.table).toBe(table)
  })

  it('limits the size of an upload', async () => {
    await start({ config: { server: { maxBodyBytes: 1024 } } })
    expect(errorOf(await call(cluster, 'POST', '/eldr/artifact', new Uint8Array(1025)))).toBe(
      '413 ELDR_BODY_TOO_LARGE',
    )
  })

  it('accepts an artifact of another model, and running requests stay on their workers', async () => {
    await start({ config: { routing: { artifact: two, policy: 'union' } } })
    let release = () => {}
    const until = new Promise<void>(resolve => (release = resolve))
    for (const decode of cluster.decodes) decode.fail({ kind: 'hang', after: 'tokens', tokens: 1, until })
    const streams = await Promise.all(Array.from({ length: 4 }, () => ask({ stream: true })))
    expect((await call(cluster, 'POST', '/eldr/artifact', { path: other })).status).toBe(200)
    for (const decode of cluster.decodes) decode.clearFaults()
    await (await ask()).text()
    expect(await lastDecision()).toMatchObject({
      policy: 'union',
      reject: 'wrong_shape',
      reason: 'no_counts',
    })
    release()
    for (const stream of streams) expect((await eventsOf(stream)).at(-1)).toBe('[DONE]')
    await cluster.idle()
  })

  it('applies the last of two concurrent uploads, and reports the result of each', async () => {
    await start({ config: { routing: { artifact: two, policy: 'jsq' } } })
    const answers = await Promise.all([
      call(cluster, 'POST', '/eldr/artifact', { path: three }),
      call(cluster, 'POST', '/eldr/artifact', { path: join(folder.path, 'nowhere') }),
      call(cluster, 'POST', '/eldr/artifact', { path: other }),
    ])
    expect(answers.map(({ status }) => status)).toEqual([200, 422, 200])
    const { file } = (await routing()).artifact
    expect([three, other]).toContain(file)
    expect(cluster.gateway.context.router.table.artifact).toBe(cluster.gateway.control.loaded!.artifact)
  })
})

describe('changes under load', () => {
  it('fail no request and leave nothing behind', async () => {
    await start({
      decode: 3,
      config: { routing: { policy: 'eldr', artifact: three } },
      decodeOptions: { gapMs: 1 },
    })
    let asked = 0
    const traffic = { on: true }
    const client = async () => {
      while (traffic.on) {
        const events = await eventsOf(await ask({ stream: true, max_tokens: 5 }))
        expect(events.at(-1)).toBe('[DONE]')
        asked++
      }
    }
    const clients = Array.from({ length: 24 }, client)
    const last = new URL(cluster.decodes[2]!.url)
    for (let round = 0; round < 6; round++) {
      const answers = await Promise.all([
        call(cluster, 'PUT', '/eldr/policy', {
          policy: ['union', 'eldr', 'jsq'][round % 3],
          tau: 0.05 * round,
        }),
        call(cluster, 'POST', '/eldr/artifact', { path: round % 2 === 0 ? two : three }),
        call(cluster, 'DELETE', `/eldr/workers/${last.host}`),
        call(cluster, 'POST', '/eldr/refit'),
      ])
      expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200])
      expect(
        (await call(cluster, 'POST', '/eldr/workers', { url: last.origin, role: 'decode' })).status,
      ).toBe(201)
    }
    await call(cluster, 'POST', '/eldr/refit')
    traffic.on = false
    await Promise.all(clients)
    expect(asked).toBeGreaterThan(24)
    await cluster.idle()
    const { router, registry } = cluster.gateway.context
    expect(router.table.artifact!.about.workers).toBe(
      registry.views(0).filter(({ spec }) => spec.role === 'decode').length,
    )
  })
})

describe('experts listed by the engine', () => {
  it('give the same decisions as counts of the plugin', async () => {
    await start({
      config: { routing: { policy: 'eldr', artifact: two } },
      prefillOptions: { counts: () => undefined },
      decodeOptions: { prefills: undefined },
    })
    const tokens = 8
    const ids = Uint8Array.from({ length: tokens * SHAPE.layers * SHAPE.topK }, (_, at) => at % SHAPE.topK)
    const header = `{'descr': '|u1', 'fortran_order': False, 'shape': (${tokens}, ${SHAPE.layers}, ${SHAPE.topK}), }`
    const head = Buffer.from(`\x93NUMPY\x01\x00\x00\x00${header.padEnd(117)}\n`, 'latin1')
    head.writeUInt16LE(head.length - 10, 8)
    const params = {
      do_remote_prefill: true,
      remote_block_ids: [[1]],
      remote_engine_id: 'e',
      remote_request_id: 'r',
      remote_host: '127.0.0.1',
      remote_port: 1,
    }
    const body = {
      choices: [{ index: 0, text: '', routed_experts: Buffer.concat([head, ids]).toString('base64') }],
      usage: { prompt_tokens: tokens },
      kv_transfer_params: params,
    }
    for (const prefill of cluster.prefills) prefill.fail({ kind: 'answer', body: JSON.stringify(body) })
    await (await ask()).text()
    expect(await lastDecision()).toMatchObject({
      policy: 'eldr',
      covered: 1,
      reason: expect.stringMatching('^match_'),
    })
    expect(await lastDecision()).not.toHaveProperty('reject')
    await cluster.idle()
  })
})
