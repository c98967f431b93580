/** Shared by the tests of the dashboard in a browser with a cluster of processes. */
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { expect } from 'vitest'
import type { Browser, Tab, View } from './chromium.ts'

export const DESK: View = { width: 1280, height: 900, scheme: 'light' }
export const PHONE: View = { width: 375, height: 740, scheme: 'dark' }
const PATIENCE_MS = 15_000

// oxlint-disable-next-line typescript/no-explicit-any -- tests know the gateway's responses
export async function api(url: string, path: string): Promise<any> {
  const response = await fetch(`${url}${path}`, { headers: { connection: 'close' } })
  expect(response.status).toBe(200)
  return response.json()
}

/** Opens a view and waits until it is live. */
export async function openDashboard(
  browser: Browser,
  url: string,
  view: string,
  size: View = DESK,
): Promise<Tab> {
  const tab = await browser.open(`${url}/dashboard#${view}`, size)
  await until(tab, `${fact('connection')} === 'live'`)
  return tab
}

/** Text of the element with this data-fact, in a page or a part of it. */
export function fact(name: string, within = 'document'): string {
  return `${within}.querySelector('[data-fact="${name}"]')?.textContent.replaceAll('\\u00a0', ' ')`
}

/** Waits until an expression is true in the page; the page checks it in every frame. */
export async function until(tab: Tab, expression: string, patienceMs = PATIENCE_MS): Promise<void> {
  const held = await tab.evaluate(`new Promise(resolve => {
    const fromMs = performance.now()
    const look = () => {
      let holds = false
      try { holds = Boolean(${expression}) } catch {}
      if (holds || performance.now() - fromMs > ${patienceMs}) resolve(holds)
      else requestAnimationFrame(look)
    }
    look()
  })`)
  if (held !== true)
    throw new Error(
      `no success within ${patienceMs} ms: ${expression}: ${String(await tab.evaluate('document.body.innerText')).slice(0, 2000)}`,
    )
}

/** Polls page and gateway until they agree: both may change between two reads. */
export async function agree<T>(shown: () => Promise<T>, told: () => Promise<T>): Promise<T> {
  const untilMs = performance.now() + PATIENCE_MS
  for (;;) {
    const before = await told()
    const page = await shown()
    if (JSON.stringify(page) === JSON.stringify(before)) return page
    if (performance.now() > untilMs) expect(page).toEqual(before)
  }
}

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

/** Findings of axe that are serious or worse. */
export async function seriousFindings(tab: Tab): Promise<string[]> {
  await tab.evaluate(`${AXE}; undefined`)
  const found = (await tab.evaluate(
    `axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => violations.map(({ id, impact, nodes }) => ({ id, impact, where: nodes.map(({ target }) => target.join(' ')).slice(0, 4) })))`,
  )) as { id: string; impact: string; where: string[] }[]
  return found
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .map(({ id, where }) => `${id}: ${where.join(', ')}`)
}

/** Starts streams that run until released, so that numbers do not change; resolves when each has begun. */
export async function longStreams(url: string, model: string, count: number): Promise<() => void> {
  const stop = new AbortController()
  const started = Array.from({ length: count }, async (_, n) => {
    const body = {
      model,
      prompt: `Stream ${n} that goes on for a good while`,
      max_tokens: 1500,
      stream: true,
      ignore_eos: true,
    }
    const response = await fetch(`${url}/v1/completions`, {
      method: 'POST',
      signal: stop.signal,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
    expect(response.status).toBe(200)
    await response.body!.getReader().read()
  })
  await Promise.all(started)
  return () => stop.abort()
}

/** Sends complete streams of a few tokens, one after the other. */
export async function shortStreams(url: string, model: string, ids: readonly string[]): Promise<void> {
  for (const id of ids) {
    const body = { model, prompt: `A short one: ${id}`, max_tokens: 5, stream: true }
    const response = await fetch(`${url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-request-id': id },
      body: JSON.stringify(body),
    })
    expect(response.status).toBe(200)
    await response.text()
  }
}
