/** The dashboard during failures, under high load, and with restricted access. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startCluster } from '../gateway/cluster.ts'
import { temporaryFolder } from '../trace-support.ts'
import { killUps, UpProcess } from '../up/up-process.ts'
import { killAll, startGatewayProcess } from '../worker/processes.ts'
import { type Browser, launchChromium } from './chromium.ts'
import { api, DESK, fact, openDashboard, PHONE, seriousFindings, until } from './dashboard-support.ts'

const folder = temporaryFolder()
let browser: Browser
let up: UpProcess
let url = ''
let pids: Record<string, number> = {}

beforeAll(async () => {
  browser = await launchChromium()
  up = new UpProcess(
    folder.path,
    'up',
    '--json',
    '--port',
    '0',
    '--prefill',
    '1',
    '--decode',
    '2',
    '--load',
    '15',
  )
  ;({ url, pids } = await up.event<{ event: string; url: string; pids: Record<string, number> }>('ready'))
}, 60_000)
afterAll(async () => {
  await browser?.close()
  up?.child.kill('SIGINT')
  await up?.exited
  killUps()
  await killAll()
  folder.remove()
})

describe('failures', () => {
  it('shows a killed worker, and its restart', async () => {
    const tab = await openDashboard(browser, url, 'overview')
    const state = `document.querySelector('[data-worker="decode-1"] .state').textContent`
    await until(tab, `${state} === 'ready'`)
    process.kill(pids['decode-1']!, 'SIGKILL')
    await until(tab, `${state} !== 'ready'`)
    expect(['no response', 'unhealthy', 'breaker open']).toContain(await tab.evaluate(state))
    await up.event('restarted', ({ name }) => name === 'decode-1')
    await until(tab, `${state} === 'ready'`)
    expect(tab.complaints).toEqual([])
    await tab.close()
  })

  it('reports a killed gateway, reconnects after its restart, and shows its new state', async () => {
    const tab = await openDashboard(browser, url, 'overview')
    await tab.evaluate(`window.sameHere = true`)
    await fetch(`${url}/eldr/policy`, { method: 'PUT', body: '{"policy":"round_robin"}' })
    await until(tab, `${fact('policy')} === 'round_robin'`)
    process.kill(pids['gateway']!, 'SIGKILL')
    await until(tab, `${fact('connection')} === 'reconnecting'`)
    await up.event('restarted', ({ name }) => name === 'gateway')
    await until(
      tab,
      `${fact('connection')} === 'live' && ${fact('policy')} === 'union' && Number(${fact('rate')}) > 0`,
    )
    expect(await tab.evaluate(`window.sameHere`)).toBe(true)
    // The browser itself reports refused connections; there are no other complaints.
    expect(tab.complaints.filter(complaint => !complaint.includes('net::ERR_'))).toEqual([])
    await tab.close()
  })
})

describe('with an admin token', () => {
  const flags = async () => {
    const { workers } = await api(url, '/eldr/workers')
    const token = join(folder.path, 'admin.txt')
    writeFileSync(token, 'sesame\n')
    return [
      ...workers.flatMap((worker: { role: string; id: string; url: string }) => [
        `--${worker.role}`,
        `${worker.id}=${worker.url}`,
      ]),
      '--policy',
      'jsq',
      '--admin-token-file',
      token,
      '--json-log',
    ] as string[]
  }
  const give = (token: string) => `(() => {
    document.querySelector('#token').value = '${token}'
    document.querySelector('#token').form.requestSubmit()
  })()`

  it('shows nothing before the token is entered; the token stays in the tab and can be deleted', async () => {
    const gateway = await startGatewayProcess(await flags())
    const tab = await browser.open(`${gateway.url}/dashboard`, PHONE)
    await until(tab, `document.querySelector('#token')`)
    expect(await tab.evaluate(`document.body.textContent.includes('decode-0')`)).toBe(false)
    expect(await seriousFindings(tab)).toEqual([])
    await tab.evaluate(give('open'))
    await until(tab, `document.querySelector('[role=alert]').textContent !== ''`)
    await tab.evaluate(give('sesame'))
    await until(tab, `document.querySelector('[data-worker="decode-0"]') && ${fact('policy')} === 'jsq'`)
    const kept = await tab.evaluate(`[localStorage.length, document.cookie, Object.values(sessionStorage)]`)
    expect(kept).toEqual([0, '', ['sesame']])
    await tab.evaluate(`location.hash = '#control'`)
    await until(
      tab,
      `document.querySelector('fieldset:disabled') === null && document.querySelector('.notice button')`,
    )
    await tab.evaluate(`document.querySelector('.notice button').click()`)
    await until(tab, `document.querySelector('#token') && sessionStorage.length === 0`)
    expect(tab.complaints).toEqual([])
    await tab.close()
    await gateway.stop()
  })

  it('an open dashboard is read-only without the token and can change the policy with it', async () => {
    const gateway = await startGatewayProcess([...(await flags()), '--dashboard', 'open'])
    const tab = await openDashboard(browser, gateway.url, 'control')
    await until(
      tab,
      `document.querySelector('#token') && document.querySelectorAll('fieldset:disabled').length === 2`,
    )
    expect(
      await tab.evaluate(`[...document.querySelectorAll('td button')].every(({ disabled }) => disabled)`),
    ).toBe(true)
    await tab.evaluate(give('sesame'))
    await until(tab, `document.querySelector('fieldset:disabled') === null`)
    await tab.evaluate(`(() => {
      const select = document.querySelector('select[name=policy]')
      select.value = 'power_of_two'
      select.dispatchEvent(new Event('change', { bubbles: true }))
      select.form.requestSubmit()
    })()`)
    await until(tab, `${fact('policy')} === 'power_of_two'`)
    const config = await fetch(`${gateway.url}/eldr/config`, { headers: { authorization: 'Bearer sesame' } })
    expect(((await config.json()) as { routing: object }).routing).toMatchObject({ policy: 'power_of_two' })
    expect(tab.complaints).toEqual([])
    await tab.close()
    await gateway.stop()
  })
})

describe('at 500 decisions per second', () => {
  it('shows a sample, says how large it is, and does not shift its layout', async () => {
    const cluster = await startCluster({ decode: 4, config: { routing: { policy: 'jsq' } } })
    const { router } = cluster.gateway.context
    const fromMs = performance.now()
    let made = 0
    const timer = setInterval(() => {
      for (const due = (performance.now() - fromMs) / 2; made < due; made++) {
        const place = router.toDecode(`fast-${made}`, undefined, 10, new Set())!
        setTimeout(() => {
          place.end('succeeded')
        }, 100)
      }
    }, 5)
    const tab = await openDashboard(browser, cluster.url, 'decisions', DESK)
    await until(tab, `Number(${fact('rate')}) > 400 && document.querySelectorAll('.decision').length === 24`)
    await tab.evaluate(`(() => {
      window.shift = 0
      new PerformanceObserver(list => list.getEntries().forEach(({ value }) => (window.shift += value))).observe({ type: 'layout-shift' })
      window.before = document.querySelectorAll('*').length
    })()`)
    await until(tab, `performance.now() > ${Number(await tab.evaluate('performance.now()')) + 3_000}`)
    const [rate, sampling, elements, shift] = (await tab.evaluate(
      `[Number(${fact('rate')}), ${fact('sampling')}, document.querySelectorAll('*').length - window.before, window.shift]`,
    )) as [number, string, number, number]
    expect(rate).toBeGreaterThan(400)
    expect(rate).toBeLessThan(600)
    expect(sampling).toMatch(/^A random sample: (19|20)[.\d]* of [45]\d\d decisions per second \([45] %\)\./)
    // As many lines as before, and no layout shift.
    expect(Math.abs(elements)).toBeLessThan(50)
    expect(shift).toBeLessThan(0.1)
    // The engine of these workers does not report experts: the page says so and what to do.
    await tab.evaluate(`location.hash = '#experts'`)
    await until(
      tab,
      `[...document.querySelectorAll('.map .empty')].filter(({ textContent }) => textContent.includes('does not report experts')).length === 4`,
    )
    expect(tab.complaints).toEqual([])
    clearInterval(timer)
    await tab.close()
    await cluster.stop()
  })
})
