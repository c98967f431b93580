/** Every view of the dashboard shows the values of the admin API for a running cluster, and is accessible. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { unpackBits } from '../../dashboard/cells.ts'
import type {
  ExpertsView,
  Hello,
  LiveWorker,
  ShadowRow,
  ShadowView,
} from '../../src/gateway/observe/insight/wire.ts'
import { temporaryFolder } from '../trace-support.ts'
import { killUps, UpProcess } from '../up/up-process.ts'
import { type Browser, launchChromium, type Tab } from './chromium.ts'
import {
  agree,
  api,
  DESK,
  fact,
  longStreams,
  openDashboard,
  PHONE,
  seriousFindings,
  shortStreams,
  until,
} from './dashboard-support.ts'

const folder = temporaryFolder()
let browser: Browser
let up: UpProcess
let url = ''
let model = ''
let letGo = () => {}

beforeAll(async () => {
  browser = await launchChromium()
  // At a fifth of the speed, so that requests stay in flight while a test looks.
  up = new UpProcess(
    folder.path,
    'up',
    '--json',
    '--port',
    '0',
    '--prefill',
    '1',
    '--decode',
    '3',
    '--speed',
    '0.2',
    '--shadow',
    'jsq',
    'union',
  )
  ;({ url, model } = await up.event<{ event: string; url: string; model: string }>('ready'))
  await shortStreams(url, model, ['early-1', 'early-2', 'early-3'])
  letGo = await longStreams(url, model, 7)
}, 60_000)
afterAll(async () => {
  letGo()
  await browser?.close()
  up?.child.kill('SIGINT')
  await up?.exited
  killUps()
  folder.remove()
})

/** The first event of a pulse stream: history and current state. */
async function greeting(): Promise<Hello> {
  const stop = new AbortController()
  const response = await fetch(`${url}/eldr/pulse`, { signal: stop.signal })
  let text = ''
  for await (const piece of response.body!.pipeThrough(new TextDecoderStream())) {
    text += piece
    if (text.includes('\n\n')) break
  }
  stop.abort()
  return JSON.parse(/^data: (.*)$/m.exec(text)![1]!) as Hello
}

const number = (value: number) =>
  value.toFixed(value >= 100 || Number.isInteger(value) ? 0 : value >= 10 ? 1 : 2)
const click = (tab: Tab, selector: string) =>
  tab.evaluate(`document.querySelector(${JSON.stringify(selector)}).click()`)
/** Buttons are disabled during a change, whose effect may be visible before its response. */
async function clickWhenFree(tab: Tab, selector: string): Promise<void> {
  await until(tab, `document.querySelector(${JSON.stringify(selector)}).disabled === false`)
  await click(tab, selector)
}

describe('overview', () => {
  it('has a column per decode worker with the requests, experts and state of the admin API', async () => {
    const tab = await openDashboard(browser, url, 'overview')
    const columns = `[...document.querySelectorAll('[data-worker]')].map(column => [column.dataset.worker, ${fact('inflight', 'column')}, column.querySelector('.state').textContent])`
    const shown = await agree(
      async () => (await tab.evaluate(columns)) as string[][],
      async () => {
        const { workers } = await api(url, '/eldr/workers')
        const of = (wanted: string) => workers.filter(({ role }: LiveWorker) => role === wanted)
        return [...of('decode'), ...of('prefill')].map(({ id, inflight, state }: LiveWorker) => [
          id,
          String(inflight),
          state,
        ])
      },
    )
    expect(shown.map(([id]) => id)).toEqual(['decode-0', 'decode-1', 'decode-2', 'prefill-0'])
    expect(shown.reduce((sum, [, inflight]) => sum + Number(inflight), 0)).toBe(7)
    const active = `[...document.querySelectorAll('.column')].map(column => ${fact('active', 'column')})`
    await agree(
      async () => (await tab.evaluate(active)) as string[],
      async () =>
        ((await api(url, '/eldr/experts')) as ExpertsView).workers.map(({ active: layers, batch }) =>
          batch === 0 ? '–' : number(layers!.reduce((sum, one) => sum + one, 0) / layers!.length),
        ),
    )
    expect(tab.complaints).toEqual([])
    await tab.close()
  })

  it('shows TPOT and TTFT by policy as measured by the gateway', async () => {
    const tab = await openDashboard(browser, url, 'overview')
    await until(
      tab,
      `document.querySelectorAll('.plot canvas').length === 2 && document.querySelector('tr[data-policy]')`,
    )
    const row = `[...document.querySelector('tr[data-policy="union"]').cells].map(cell => cell.textContent.trim().replaceAll('\\u00a0', ' '))`
    const [, streams, tpot, , ttft] = (await tab.evaluate(row)) as string[]
    const { pace } = await greeting()
    const sum = (of: 'tpot' | 'ttft') => pace.reduce((total, point) => total + (point[of]?.count ?? 0), 0)
    expect([Number(streams), sum('tpot'), sum('ttft')]).toEqual([3, 3, 10])
    expect(await (await fetch(`${url}/metrics`)).text()).toContain('eldr_inter_token_seconds_count 3\n')
    const median = (of: 'tpot' | 'ttft') =>
      pace.reduce((total, point) => total + (point[of]?.p50 ?? 0) * (point[of]?.count ?? 0), 0) / sum(of)
    const ms = (text: string) => Number.parseFloat(text) * (text.endsWith(' ms') ? 1 : 1000)
    expect(ms(tpot!) / median('tpot')).toBeCloseTo(1, 1)
    expect(ms(ttft!) / median('ttft')).toBeCloseTo(1, 1)
    await tab.close()
  })
})

describe('experts', () => {
  it('are drawn cell by cell as reported by the workers, and can be read by keyboard', async () => {
    const tab = await openDashboard(browser, url, 'experts')
    await until(tab, `document.querySelectorAll('.map canvas').length === 3`)
    await tab.evaluate(
      `[...document.querySelectorAll('.choice button')].find(button => button.textContent === 'Now').click()`,
    )
    // Filled cells are closer to the full colour than to the empty one.
    const cells = `[...document.querySelectorAll('.map canvas')].map(canvas => {
      const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)
      return Array.from({ length: data.length / 4 }, (_, cell) => data[4 * cell] < 120 ? 1 : 0).join('')
    })`
    const drawn = await agree(
      async () => (await tab.evaluate(cells)) as string[],
      async () => {
        const { workers, layers, experts } = (await api(url, '/eldr/experts')) as ExpertsView
        return workers.map(({ union }) => unpackBits(union!, layers * experts).join(''))
      },
    )
    expect(drawn.map(map => map.length)).toEqual([16 * 128, 16 * 128, 16 * 128])
    expect(new Set(drawn).size).toBe(3)
    for (const map of drawn) expect(map).toContain('1')
    await tab.evaluate(`document.querySelector('.cells').focus()`)
    for (const key of ['ArrowRight', 'ArrowRight', 'ArrowDown']) await tab.press(key)
    await until(tab, `document.querySelector('.cellreadout').textContent.startsWith('layer 1, expert 1')`)
    await tab.evaluate(
      `[...document.querySelectorAll('.choice button')].find(button => button.textContent === 'Compared with others').click()`,
    )
    await until(tab, `document.querySelector('.heatlegend').textContent.includes('this worker uses it more')`)
    const overlaps = (await tab.evaluate(
      `[...document.querySelectorAll('.overlap tbody td')].map(cell => cell.textContent)`,
    )) as string[]
    expect(overlaps.filter(text => /^\d+\u00a0%$/.test(text))).toHaveLength(6)
    expect(tab.complaints).toEqual([])
    await tab.close()
  })
})

describe('decisions', () => {
  it('appear live with their reason, and open the details of a request', async () => {
    const tab = await openDashboard(browser, url, 'decisions')
    await shortStreams(url, model, ['told-1', 'told-2'])
    await until(
      tab,
      `[...document.querySelectorAll('.decision .request')].some(({ textContent }) => textContent === 'told-2')`,
    )
    const { decisions } = await api(url, '/eldr/decisions?limit=2')
    const lines = (await tab.evaluate(
      `[...document.querySelectorAll('.decision')].slice(0, 2).map(line => [line.querySelector('.request').textContent, line.querySelector('.worker').textContent, line.querySelector('.numbers').textContent])`,
    )) as string[][]
    for (const [at, { request, worker, candidates }] of decisions.entries()) {
      const { similarity } = candidates.find(({ id }: { id: string }) => id === worker)
      expect(lines[at]!.slice(0, 2)).toEqual([request, worker])
      expect(lines[at]![2]).toMatch(new RegExp(`^cos ${similarity.toFixed(3).slice(0, -1)}\\d`))
    }
    expect(await tab.evaluate(fact('sampling'))).toMatch(/^All decisions are shown/)
    await tab.evaluate(
      `[...document.querySelectorAll('.decision')].find(line => line.textContent.includes('told-1')).focus()`,
    )
    await tab.press('Enter')
    await until(tab, `document.querySelector('dialog[open]') && ${fact('outcome')} === 'completed (200)'`)
    const { story } = await api(url, '/eldr/requests/told-1')
    const legs = (await tab.evaluate(
      `[...document.querySelectorAll('.legs li')].map(leg => leg.querySelector('b').textContent + ' ' + leg.querySelector('.worker').textContent)`,
    )) as string[]
    expect(legs).toEqual(
      story.legs.map(({ leg, worker }: { leg: string; worker: string }) => `${leg} ${worker}`),
    )
    expect(legs).toEqual(['prefill prefill-0', expect.stringMatching(/^decode decode-\d$/)])
    expect(await seriousFindings(tab)).toEqual([])
    await tab.press('Escape')
    await until(tab, `document.querySelector('dialog') === null && location.hash === '#decisions'`)
    expect(tab.complaints).toEqual([])
    await tab.close()
  })
})

describe('signatures', () => {
  it('show the calibration requests and the fit quality computed by the gateway', async () => {
    const tab = await openDashboard(browser, url, 'signatures')
    await until(tab, `document.querySelector('.space canvas') && ${fact('coverage')}`)
    await agree(
      async () => [
        await tab.evaluate(fact('coverage')),
        await tab.evaluate(fact('without')),
        await tab.evaluate(fact('median')),
      ],
      async () => {
        const { health } = (await greeting()).pulse
        const median = health.quantiles.find(({ q }) => q === 0.5)!
        return [
          `${(100 * health.coverage!).toFixed(1)} %`,
          `${((100 * health.withoutSignature) / health.decisions).toFixed(1)} %`,
          median.live!.toFixed(3),
        ]
      },
    )
    const colours = (await tab.evaluate(`(() => {
      const canvas = document.querySelector('.space canvas')
      const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)
      const seen = new Set()
      for (let at = 0; at < data.length; at += 4) seen.add(data[at] << 16 | data[at + 1] << 8 | data[at + 2])
      return seen.size
    })()`)) as number
    expect(colours).toBeGreaterThan(50)
    expect(tab.complaints).toEqual([])
    await tab.close()
  })
})

describe('changes', () => {
  it('are locked until the user allows them; then policy and workers change', async () => {
    const tab = await openDashboard(browser, url, 'control')
    await until(tab, `document.querySelector('fieldset:disabled') !== null`)
    expect(await tab.evaluate(`document.querySelector('main').textContent.includes('Read-only')`)).toBe(true)
    expect(
      await tab.evaluate(`[...document.querySelectorAll('td button')].every(({ disabled }) => disabled)`),
    ).toBe(true)
    await click(tab, '.notice button')
    await until(tab, `document.querySelector('fieldset:disabled') === null`)
    await tab.evaluate(`(() => {
      const [select, tau] = [document.querySelector('select[name=policy]'), document.querySelector('input[name=tau]')]
      select.value = 'jsq'
      select.dispatchEvent(new Event('change', { bubbles: true }))
      tau.value = '0.25'
      tau.dispatchEvent(new Event('input', { bubbles: true }))
    })()`)
    await until(tab, `document.querySelector('input[name=tau]').value === '0.25'`)
    await click(tab, 'form button[type=submit]')
    await until(tab, `${fact('policy')} === 'jsq'`)
    expect((await api(url, '/eldr/config')).routing).toMatchObject({ policy: 'jsq', tau: 0.25 })
    await clickWhenFree(tab, 'tr[data-worker=decode-1] button')
    await until(tab, `document.querySelector('tr[data-worker=decode-1] .state').textContent === 'draining'`)
    expect(
      (await api(url, '/eldr/workers')).workers.find(({ id }: LiveWorker) => id === 'decode-1').state,
    ).toBe('draining')
    await clickWhenFree(tab, 'tr[data-worker=decode-1] button')
    await until(tab, `document.querySelector('tr[data-worker=decode-1] .state').textContent === 'ready'`)
    await until(tab, `document.querySelector('fieldset:disabled') === null`)
    await tab.evaluate(`(() => {
      document.querySelector('input[name=path]').value = 'nowhere.safetensors'
      document.querySelector('input[name=path]').form.requestSubmit()
    })()`)
    await until(tab, `document.querySelector('.said.warn')?.textContent.includes('nowhere.safetensors')`)
    await fetch(`${url}/eldr/policy`, { method: 'PUT', body: '{"policy":"eldr","tau":0.1}' })
    await until(tab, `${fact('policy')} === 'eldr'`)
    // The browser itself reports the rejected request; there are no other complaints.
    expect(tab.complaints.filter(complaint => !complaint.includes('status of 422'))).toEqual([])
    await tab.close()
  })
})

describe('adapt', () => {
  it('shows the state, the sample and the drift of live recalibration', async () => {
    const tab = await openDashboard(browser, url, 'adapt')
    await until(tab, `document.querySelector('[data-fact="adapt-state"]') !== null`)
    const told = async () => {
      const { state, sample } = await api(url, '/eldr/adapt')
      return { state, sample: String(sample.requests) }
    }
    const shown = async () => ({
      state: await tab.evaluate(`document.querySelector('[data-fact="adapt-state"]').dataset.state`),
      sample: await tab.evaluate(fact('sample')),
    })
    expect(await agree(shown, told)).toMatchObject({ state: 'steady' })
    await until(tab, `document.querySelector('svg.drift path') !== null`)
    expect(await tab.evaluate(`document.querySelector('svg.drift').getAttribute('aria-label')`)).toMatch(
      /^Mean rank over time, \d\.\d\d at /,
    )
    expect(await tab.evaluate(`document.querySelector('[data-do="undo"]')`)).toBe(null)
    expect(tab.complaints).toEqual([])
    await tab.close()
  })

  it('compares shadow policies with the policy in force', async () => {
    await shortStreams(url, model, ['shadowed-1', 'shadowed-2', 'shadowed-3'])
    const tab = await openDashboard(browser, url, 'adapt')
    await until(tab, `document.querySelector('[data-shadow]') !== null`)
    const rows = `[...document.querySelectorAll('[data-shadow]')].map(row => [...row.cells].map(cell => cell.textContent.replaceAll('\\u00a0', ' ')))`
    const shown = await agree(
      async () => (await tab.evaluate(rows)) as string[][],
      async () => {
        const { requests, shadows }: ShadowView = await api(url, '/eldr/shadow')
        return shadows.map(({ policy, state, decisions, agreed, judged, experts, costUs }) => [
          policy,
          decisions === 0 ? '–' : `${((100 * agreed) / decisions).toFixed(0)} %`,
          ...(experts === undefined ? ['–', '–'] : [number(experts.shadow), number(experts.inForce)]),
          ...(costUs === undefined
            ? ['–', '–', '–']
            : [
                `${number(costUs.shadow / 1000)} ms`,
                `${number(costUs.inForce / 1000)} ms`,
                `${(100 * (costUs.shadow / costUs.inForce - 1)).toFixed(1)} %`,
              ]),
          String(judged),
          String(requests - decisions),
          state,
        ])
      },
    )
    const figures = Array(8).fill(expect.stringMatching(/\d/))
    expect(shown).toEqual([
      ['jsq', ...figures, 'deciding'],
      ['union', ...figures, 'deciding'],
    ])
    expect(tab.complaints).toEqual([])
    await tab.close()
  })

  it('says what a shadow policy lacks, why one failed, and how to set them', async () => {
    const tab = await openDashboard(browser, url, 'adapt')
    // The cluster lacks nothing: from here on the page reads these responses instead.
    const respond = (shadows: readonly Partial<ShadowRow>[]) =>
      tab.evaluate(`{
        const real = (window.realFetch ??= window.fetch)
        window.fetch = (path, init) => path === 'eldr/shadow'
          ? Promise.resolve(Response.json({ inForce: 'jsq', sinceMs: 0, requests: 9, shadows: ${JSON.stringify(shadows)} }))
          : real(path, init)
        undefined
      }`)
    const none = { decisions: 0, agreed: 0, judged: 0 }
    await respond([
      { policy: 'eldr', state: 'waiting', why: 'an artifact with centroids', ...none },
      { policy: 'band', state: 'failed', why: 'no row', ...none },
    ])
    await until(tab, `document.querySelector('[data-shadow="band"]') !== null`)
    const cells = (policy: string) =>
      tab.evaluate(
        `[...document.querySelector('[data-shadow="${policy}"]').cells].slice(-2).map(cell => cell.textContent)`,
      )
    expect(await cells('eldr')).toEqual(['–', 'waiting: needs an artifact with centroids'])
    expect(await cells('band')).toEqual([
      '–',
      'failed: no row. It decides again after the next change of routing.',
    ])
    await respond([])
    await until(tab, `document.querySelector('[data-shadow]') === null`)
    expect(await tab.evaluate(`document.querySelector('main').innerText`)).toContain('--shadow jsq union')
    await tab.close()
  })

  it('names a running experiment until it ends', async () => {
    const tab = await openDashboard(browser, url, 'adapt')
    await until(tab, `document.querySelector('[data-shadow]') !== null`)
    expect(await tab.evaluate(fact('experiment'))).toBe(undefined)
    const change = async (method: string, path: string, body?: object) => {
      const response = await fetch(`${url}/eldr/experiment${path}`, {
        method,
        body: body && JSON.stringify(body),
      })
      expect(response.ok).toBe(true)
      return (await response.json()) as { readonly id: string; readonly restores: string }
    }
    const { id, restores } = await change('POST', '', { policies: ['jsq', 'union'], leaseMs: 60_000 })
    await change('PUT', `/${id}`, { policy: 'jsq' })
    const words = `An experiment compares jsq, union: slot 1, jsq in force. At its end ${restores} is restored.`
    await until(tab, `${fact('experiment')} === ${JSON.stringify(words)}`)
    await change('DELETE', `/${id}`)
    await until(tab, `${fact('experiment')} === undefined`)
    await tab.close()
  })
})

describe.each(['overview', 'experts', 'decisions', 'signatures', 'adapt', 'control'])('view %s', name => {
  it('has no serious axe findings and no horizontal scrolling, on a light desktop and a dark phone', async () => {
    for (const size of [DESK, PHONE]) {
      const tab = await openDashboard(browser, url, name, size)
      await until(tab, `document.querySelector('main section')`)
      expect(await seriousFindings(tab)).toEqual([])
      expect(await tab.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true)
      expect(tab.complaints).toEqual([])
      await tab.close()
    }
  })
})
