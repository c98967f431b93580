/**
 * A real Prometheus on a live cluster with load, faults and a worker that dies: what dashboard and alerts ask
 * for is there, and true.
 */
import { spawnSync } from 'node:child_process'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { temporaryFolder } from '../../trace-support.ts'
import { killAll, polled } from '../../worker/processes.ts'
import { tool } from '../tools.ts'
import { readDashboard, readRules, type RuleFile, type Shown, shownBy } from './expressions.ts'
import { Prometheus, type Sample } from './prometheus-process.ts'
import { ROOM, startWatchedCluster, type WatchedCluster } from './watched-cluster.ts'

/** Rates look back over all of the test. */
const WINDOW = '60s'

const folder = temporaryFolder()
let cluster: WatchedCluster
let prometheus: Prometheus
/**
 * Of every request to /v1/completions that this test sent: its status, or 'broken' for a stream without its
 * end.
 */
const ended: Record<string, number> = {}

beforeAll(async () => {
  cluster = await startWatchedCluster(folder.path)
  prometheus = await Prometheus.start(folder.path, cluster.targets, atOnce(readRules()))
})

afterAll(async () => {
  await prometheus?.stop()
  await cluster?.stop()
  await killAll()
  folder.remove()
})

/** The shipped rules, without the time that they wait. */
function atOnce({ groups }: RuleFile): RuleFile {
  return {
    groups: groups.map(({ name, rules }) => ({ name, rules: rules.map(rule => ({ ...rule, for: '0s' })) })),
  }
}

const bodyOf = (n: number, tokens: number) => ({
  prompt: Array.from({ length: 30 + 17 * (n % 9) }, (_, t) => 300 + ((t * 7 + n * 13) % 500)),
  max_tokens: tokens,
  min_tokens: tokens,
  ignore_eos: true,
  eldr_row: n * 3,
  stream: n % 4 !== 3,
})

async function ask(body: unknown): Promise<void> {
  const answer = await cluster.gateway.post('/v1/completions', body)
  const text = await answer.text()
  const isBroken = answer.status === 200 && text.startsWith('data:') && !text.includes('data: [DONE]')
  const how = isBroken ? 'broken' : String(answer.status)
  ended[how] = (ended[how] ?? 0) + 1
}

const asked = () => Object.values(ended).reduce((sum, count) => sum + count, 0)

/** As many at once as are let in. */
async function askAll(bodies: readonly unknown[]): Promise<void> {
  const left = [...bodies]
  await Promise.all(
    Array.from({ length: ROOM }, async () => {
      for (let body = left.pop(); body !== undefined; body = left.pop()) await ask(body)
    }),
  )
}

async function route(policy: string): Promise<void> {
  const answer = await fetch(`${cluster.gateway.url}/eldr/policy`, {
    method: 'PUT',
    body: JSON.stringify({ policy }),
  })
  expect(answer.status).toBe(200)
}

/** So many requests are on decode workers. */
async function onDecode(count: number): Promise<void> {
  const load = async () =>
    (await cluster.workers()).filter(({ id }) => id.startsWith('decode')).map(({ inflight }) => inflight)
  await polled(
    load,
    all => all.reduce((sum, one) => sum + one) === count,
    `${count} requests on decode workers`,
  )
}

/** Looks again until all is as wanted; says what is not. */
async function settles(what: string, wrong: () => Promise<readonly string[]>): Promise<void> {
  await polled(wrong, all => all.length === 0, what)
}

async function lacking({ name, expr, labels }: Shown): Promise<string[]> {
  const samples = (await prometheus.query(expr)).filter(({ value }) => !Number.isNaN(value))
  if (samples.length === 0) return [`${name}: nothing: ${expr}`]
  const missing = labels.filter(label => samples.some(({ metric }) => metric[label] === undefined))
  return missing.map(label => `${name}: without ${label}`)
}

const byLabel = (samples: readonly Sample[], label: string) =>
  Object.fromEntries(
    samples.filter(({ value }) => value > 0).map(({ metric, value }) => [metric[label], value]),
  )

describe('a healthy cluster under load', () => {
  it('is monitored completely: gateways, workers, and only the expected alerts', async () => {
    await settles('all targets up', async () => {
      const up = await prometheus.query('up == 1')
      return up.length === cluster.targets.length ? [] : [`${up.length} up`]
    })
    await askAll(Array.from({ length: 60 }, (_, n) => bodyOf(n, 16)))
    expect(ended).toEqual({ 200: 60 })
    await settles('the requests that were sent', async () => {
      const outcomes = byLabel(
        await prometheus.query('sum by (outcome) (eldr_requests_total{route="completions"})'),
        'outcome',
      )
      return outcomes['ok'] === 60 && Object.keys(outcomes).length === 1 ? [] : [JSON.stringify(outcomes)]
    })
    // One prefill worker hands off no counts: that is what this one is for. Others work on this machine too,
    // and nothing waits here before
    // it fires: what speaks of the processor says nothing of the cluster.
    const firing = async () =>
      (await prometheus.alerts())
        .map(({ labels }) => labels['alertname'])
        .filter(name => name !== 'EldrEventLoopLate' && name !== 'EldrGatewaySaturated')
    expect(await polled(firing, names => names.length > 0, 'EldrSignaturesMissing')).toEqual([
      'EldrSignaturesMissing',
    ])
  })

  it('is counted as by the admin API and the clients', async () => {
    const total = (expr: string) => prometheus.number(`sum(${expr})`)
    const listed = await cluster.workers()
    expect(listed.map(({ inflight, tokens }) => inflight + tokens)).toEqual([0, 0, 0, 0, 0])
    await settles('no load in Prometheus either', async () => {
      const load = await total('eldr_worker_inflight + eldr_worker_inflight_tokens')
      const tickets = await total('eldr_tickets')
      return load === 0 && tickets === 0 ? [] : [`${load} and ${tickets} tickets`]
    })
    expect(await total('eldr_tokens_total{kind="output"}')).toBe(60 * 16)
    expect(await total('eldr_worker_requests_total{leg="decode"}')).toBe(await total('eldr_decisions_total'))
    expect(await total('eldr_worker_requests_total{leg="prefill"}')).toBe(60)
    expect(
      (await total('eldr_signature_rejects_total{reason="missing"} or vector(0)')) +
        (await total('eldr_signature_coverage_count')),
    ).toBe(60)
    expect(await total('eldr_time_to_first_token_seconds_count')).toBe(45)
    const sent = await total('eldr_client_bytes_total{direction="sent"}')
    expect(sent).toBeGreaterThan(60 * 16 * 50)
    expect(await total('eldr_worker_bytes_total{leg="decode", direction="received"}')).toBeGreaterThan(
      sent / 4,
    )
    expect(byLabel(await prometheus.query('eldr_fit_similarity{q="0.5"}'), 'of')).toEqual({
      live: expect.any(Number),
      calibration: expect.any(Number),
    })
  })
})

describe('the metrics', () => {
  it.each(['gateway', 'decode worker'])('of a %s are valid for Prometheus', async what => {
    const { url } = what === 'gateway' ? cluster.gateway : cluster.decodes[0]!
    const input = await (await fetch(`${url}/metrics`)).text()
    const { stderr } = spawnSync(tool('prometheus', 'promtool'), ['check', 'metrics'], {
      input,
      encoding: 'utf8',
    })
    // Node's own are prom-client's, and vLLM's names are vLLM's.
    expect(stderr.split('\n').filter(line => line !== '' && !/^(nodejs_|vllm:)/.test(line))).toEqual([])
    expect(input).toContain('# TYPE eldr_')
  })
})

describe('a fault', () => {
  it('is visible: refused clients, invalid requests, a dead worker, and the alert for it', async () => {
    for (const wrong of ['{"prompt": ', { prompt: 'a', n: -1 }]) await ask(wrong)
    await Promise.all(Array.from({ length: 40 }, (_, n) => ask(bodyOf(n, 16))))
    expect(ended).toMatchObject({ 400: 2, 429: expect.any(Number) })

    // Round robin: of three streams and three requests that are not streamed each worker has one.
    await route('round_robin')
    const victim = cluster.decodes[2]!
    const before = await victim.metric('vllm:generation_tokens_total')
    const under = [0, 1, 2].map(n => ask({ ...bodyOf(n, 600), stream: true }))
    await onDecode(3)
    under.push(...[0, 1, 2].map(n => ask({ ...bodyOf(n, 600), stream: false })))
    await onDecode(6)
    await polled(
      () => victim.metric('vllm:generation_tokens_total'),
      tokens => tokens > before + 40,
      'tokens of the victim',
    )
    // The stream there has begun, so that its client must be told; the other is tried again elsewhere.
    await victim.kill()
    await route('band') // the only policy with a size of its band
    await Promise.all(under)
    expect(ended['broken']).toBe(1)
    const lost = (all: readonly { labels: Readonly<Record<string, string>> }[]) =>
      all.filter(({ labels }) => labels['alertname'] === 'EldrWorkerLost')
    const [alert] = lost(
      await polled(
        () => prometheus.alerts(),
        all => lost(all).length > 0,
        'EldrWorkerLost',
      ),
    ) as [Awaited<ReturnType<Prometheus['alerts']>>[number]]
    expect(alert.labels).toMatchObject({ worker: 'decode-2', leg: 'decode', severity: 'warning' })
    expect(alert.annotations['summary']).toBe('Worker decode-2 fails its health checks')
    expect(alert.annotations['description']).toMatch(
      /^127\.0\.0\.1:\d+ sends nothing to the decode worker decode-2\. /,
    )
    await settles('all that was sent, by how it ended', async () => {
      const outcomes = byLabel(
        await prometheus.query('sum by (outcome) (eldr_requests_total{route="completions"})'),
        'outcome',
      )
      const wanted = { ok: ended['200'], refused: (ended['429'] ?? 0) + 2, broken: ended['broken'] }
      const same = Object.entries(wanted).every(([outcome, count]) => outcomes[outcome] === count)
      return same ? [] : [JSON.stringify([outcomes, ended, asked()])]
    })
    const codes = byLabel(await prometheus.query('eldr_error_answers_total'), 'code')
    expect(codes).toMatchObject({
      ELDR_OVERLOADED: ended['429'],
      ELDR_BAD_REQUEST: 2,
      ELDR_STREAM_BROKEN: ended['broken'],
    })
  })

  it('leaves nothing on any worker', async () => {
    await settles('no tickets', async () => {
      const left = await prometheus.query(
        'eldr_tickets > 0 or eldr_running_requests > 0 or eldr_worker_inflight > 0 or eldr_ticket_leaks_total > 0 or eldr_ticket_double_releases_total > 0',
      )
      return left.map(({ metric, value }) => `${JSON.stringify(metric)} ${value}`)
    })
    expect((await cluster.workers()).every(({ inflight }) => inflight === 0)).toBe(true)
  })
})

describe('the dashboard', () => {
  it('has data in every panel, with the labels of its legends', async () => {
    await route('union') // the only policy that learns the cost of a step
    await askAll(Array.from({ length: 60 }, (_, n) => bodyOf(n, 16)))
    await route('band')
    // A little load, for what looks at the last seconds only.
    await askAll(Array.from({ length: 12 }, (_, n) => bodyOf(n, 8)))
    let left = shownBy(readDashboard(), WINDOW)
    expect(left.length).toBeGreaterThan(80)
    await settles('data for every panel', async () => {
      const looks = await Promise.all(left.map(async shown => ({ shown, wrong: await lacking(shown) })))
      left = looks.filter(({ wrong }) => wrong.length > 0).map(({ shown }) => shown)
      return looks.flatMap(({ wrong }) => wrong)
    })
  })

  it('has values for every variable', async () => {
    const choices: Record<string, string[]> = {}
    for (const { name, definition } of readDashboard().templating.list) {
      const [, series, label] = /^label_values\((.*), (\w+)\)$/.exec(definition ?? '') ?? []
      if (series !== undefined)
        choices[name] = await prometheus.labelValues(label!, series.replaceAll(/\$\w+/g, '.*'))
    }
    expect(choices).toEqual({
      job: ['eldr'],
      instance: [new URL(cluster.gateway.url).host],
      worker: ['decode-0', 'decode-1', 'decode-2', 'prefill-0', 'prefill-1'],
    })
  })
})

describe('the alerts', () => {
  it('are all evaluated without an error', async () => {
    const names = readRules().groups.flatMap(({ rules }) => rules.map(({ alert }) => alert))
    const health = await polled(
      () => prometheus.ruleHealth(),
      rules => rules.every(({ health }) => health !== 'unknown'),
      'rules evaluated',
    )
    expect(health.map(({ name }) => name).toSorted()).toEqual(names.toSorted())
    expect(health.filter(({ health }) => health !== 'ok')).toEqual([])
    for (const { annotations } of await prometheus.alerts())
      expect(JSON.stringify(annotations)).not.toMatch(/error expanding|no value/i)
  })
})
