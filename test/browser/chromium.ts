/**
 * Controls Chromium without a driver, by its DevTools protocol over two pipes (JSON messages that end in a
 * zero byte). Enough to open a page at a size and theme, evaluate expressions and take screenshots.
 */
import { spawn } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Readable, Writable } from 'node:stream'

export interface Browser {
  open(url: string, view: View): Promise<Tab>
  close(): Promise<void>
}

export interface View {
  /** CSS pixels. */
  readonly width: number
  readonly height: number
  readonly scheme: 'light' | 'dark'
}

export interface Tab {
  /** Value of an expression in the page; promises are awaited. */
  evaluate(expression: string): Promise<unknown>
  /** Presses a key: Tab, Enter, ArrowRight. */
  press(key: string): Promise<void>
  /** PNG of the whole page, or of the visible part. */
  picture(what?: 'page' | 'view'): Promise<Buffer>
  /** Complaints of the browser: failed loads, policy violations, script errors. */
  readonly complaints: readonly string[]
  close(): Promise<void>
}

type Reply = Readonly<Record<string, unknown>>
interface Message {
  readonly id?: number
  readonly method?: string
  readonly sessionId?: string
  readonly params?: Reply
  readonly result?: Reply
  readonly error?: { readonly message: string }
}

const FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--hide-scrollbars',
  '--remote-debugging-pipe',
]

/** Keys that move the focus in Chromium. */
const KEY_CODES: Readonly<Record<string, number>> = {
  Tab: 9,
  Enter: 13,
  Escape: 27,
  ArrowLeft: 37,
  ArrowUp: 38,
  ArrowRight: 39,
  ArrowDown: 40,
}

function isConsoleError(method: string | undefined, params: Reply | undefined): boolean {
  return (
    method === 'Runtime.consoleAPICalled' && (params?.['type'] === 'error' || params?.['type'] === 'warning')
  )
}

export async function launchChromium(path = process.env['CHROMIUM'] ?? 'chromium'): Promise<Browser> {
  const profile = await mkdtemp(join(tmpdir(), 'eldr-chromium-'))
  const child = spawn(path, [...FLAGS, `--user-data-dir=${profile}`, 'about:blank'], {
    stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'],
  })
  const ended = new Promise<void>(resolve => child.once('close', () => resolve()))
  const waiting = new Map<number, { resolve(result: Reply): void; reject(error: Error): void }>()
  const listeners = new Set<(message: Message) => void>()
  const fail = (error: Error) => waiting.forEach(({ reject }) => reject(error))
  child.once('error', fail)
  child.once('exit', code => fail(new Error(`chromium ended with ${code}`)))
  let last = 0
  let unread = ''

  function take(message: Message): void {
    const call = message.id === undefined ? undefined : waiting.get(message.id)
    if (message.id !== undefined) waiting.delete(message.id)
    if (message.error !== undefined) call?.reject(new Error(message.error.message))
    else call?.resolve(message.result ?? {})
    listeners.forEach(listen => listen(message))
  }
  ;(child.stdio[4] as Readable).setEncoding('utf8').on('data', (chunk: string) => {
    const parts = (unread + chunk).split('\0')
    unread = parts.pop()!
    for (const part of parts) take(JSON.parse(part) as Message)
  })

  function send(method: string, params: Reply = {}, sessionId?: string): Promise<Reply> {
    const id = ++last
    ;(child.stdio[3] as Writable).write(`${JSON.stringify({ id, method, params, sessionId })}\0`)
    return new Promise((resolve, reject) => waiting.set(id, { resolve, reject }))
  }

  async function open(url: string, { width, height, scheme }: View): Promise<Tab> {
    const { targetId } = await send('Target.createTarget', { url: 'about:blank' })
    const { sessionId } = (await send('Target.attachToTarget', { targetId, flatten: true })) as {
      sessionId: string
    }
    const call = (method: string, params: Reply = {}) => send(method, params, sessionId)
    const complaints: string[] = []
    const loaded = new Promise<void>(resolve => {
      listeners.add(({ sessionId: from, method, params }) => {
        if (from !== sessionId) return
        if (method === 'Page.loadEventFired') resolve()
        if (
          method === 'Log.entryAdded' ||
          method === 'Runtime.exceptionThrown' ||
          isConsoleError(method, params)
        )
          complaints.push(JSON.stringify(params))
      })
    })
    await call('Page.enable')
    await call('Log.enable')
    await call('Runtime.enable')
    await call('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: false })
    await call('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] })
    await call('Page.navigate', { url })
    await loaded
    return {
      complaints,
      async evaluate(expression) {
        const { result, exceptionDetails } = await call('Runtime.evaluate', {
          expression,
          returnByValue: true,
          awaitPromise: true,
        })
        if (exceptionDetails !== undefined) throw new Error(JSON.stringify(exceptionDetails))
        return (result as { value?: unknown }).value
      },
      async press(key) {
        const code = KEY_CODES[key] ?? 0
        const text = key === 'Enter' ? '\r' : undefined
        for (const type of ['keyDown', 'keyUp'])
          await call('Input.dispatchKeyEvent', { type, key, code: key, windowsVirtualKeyCode: code, text })
      },
      async picture(what = 'page') {
        const { data } = await call('Page.captureScreenshot', { captureBeyondViewport: what === 'page' })
        return Buffer.from(data as string, 'base64')
      },
      close: async () => void (await send('Target.closeTarget', { targetId })),
    }
  }

  return {
    open,
    async close() {
      await send('Browser.close').catch(() => undefined)
      await ended
      await rm(profile, { recursive: true, force: true, maxRetries: 5 })
    },
  }
}
