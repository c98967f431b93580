import {
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { temporaryFolder } from '../trace-support.ts'
import { type Discovering, eventsOf, heldStreams, type Pods, startDiscovering, startPods } from './support.ts'

const root = temporaryFolder()
let pods: Pods
let folder: string
let path: string
let current: Discovering | undefined
beforeAll(async () => void (pods = await startPods(3)))
afterAll(async () => {
  await pods.close()
  root.remove()
})
beforeEach(() => {
  folder = mkdtempSync(join(root.path, 'file-'))
  path = join(folder, 'workers.yaml')
})
afterEach(async () => {
  await current?.gateway.stop()
  current = undefined
})

/** The file with these decode workers, as YAML. */
const text = (...decodes: number[]) =>
  [
    `prefill: [{url: "${pods.prefill.url}", id: p}]`,
    'decode:',
    ...decodes.map(n => `  - {url: "${pods.decodes[n]!.url}", id: d${n}}`),
  ].join('\n')
/** By default the file is only watched, not polled. */
async function start(pollMs = 3_600_000): Promise<Discovering> {
  current = await startDiscovering({ file: { path, pollMs } })
  return current
}
const sees = (...decodes: number[]) =>
  current!.until(
    () =>
      JSON.stringify(Object.entries(current!.states()).toSorted()) ===
      JSON.stringify([...decodes.map(n => [`d${n}`, 'ready']), ['p', 'ready']]),
  )
const said = (words: string) => current!.until(() => current!.warnings().some(line => line.includes(words)))
const isWell = async () => (await current!.get('/ready')).discovery[0].up as boolean

describe('a file of workers', () => {
  it('is followed when it is rewritten, and when another is renamed over it', async () => {
    writeFileSync(path, text(0, 1))
    const { get, view } = await start()
    await sees(0, 1)
    expect((await current!.post({ prompt: 'a', max_tokens: 3 })).status).toBe(200)
    expect((await get('/eldr/workers')).workers.map(({ source }: { source: string }) => source)).toEqual([
      'file',
      'file',
      'file',
    ])
    writeFileSync(path, text(1, 2))
    await sees(1, 2)
    expect(view('d1')!.index).toBe(1)
    const json = {
      prefill: [{ url: pods.prefill.url, id: 'p' }],
      decode: [{ url: pods.decodes[0]!.url, id: 'd0' }],
    }
    writeFileSync(join(folder, 'next'), JSON.stringify(json))
    renameSync(join(folder, 'next'), path)
    await sees(0)
  })

  it('is followed as Kubernetes mounts a ConfigMap: by symbolic links that are swapped', async () => {
    const put = (name: string, contents: string) => {
      mkdirSync(join(folder, name))
      writeFileSync(join(folder, name, 'workers.yaml'), contents)
      symlinkSync(name, join(folder, '..data_tmp'))
      renameSync(join(folder, '..data_tmp'), join(folder, '..data'))
    }
    put('..first', text(0))
    symlinkSync(join('..data', 'workers.yaml'), path)
    await start()
    await sees(0)
    put('..second', text(0, 2))
    rmSync(join(folder, '..first'), { recursive: true })
    await sees(0, 2)
    expect(current!.warnings()).toEqual([])
  })

  it.each([
    ['is emptied', () => truncateSync(path, 0), 'lists no workers'],
    ['is cut off', () => writeFileSync(path, text(0, 1).slice(0, -8)), 'workers.yaml:4:'],
    ['is not YAML', () => writeFileSync(path, '\u0000\u0001{{{'), 'workers.yaml'],
    ['has an invalid worker', () => writeFileSync(path, 'decode: [gopher://a]'), 'found the scheme gopher'],
    ['names no worker', () => writeFileSync(path, 'prefill: []\ndecode: []'), 'lists no workers'],
    ['is deleted', () => unlinkSync(path), 'ENOENT'],
    [
      'is too large',
      () => writeFileSync(path, `# ${'x'.repeat(1 << 20)}\n${text(0)}`),
      'is larger than 1 MiB',
    ],
    [
      'names too many workers',
      () =>
        writeFileSync(
          path,
          `decode:\n${Array.from({ length: 4097 }, (_, n) => `  - http://10.0.0.1:${n + 1}\n`).join('')}`,
        ),
      'more than 4096 workers',
    ],
    ['is a folder', () => (unlinkSync(path), mkdirSync(path)), 'not a regular file'],
    ['is deleted with its folder', () => rmSync(folder, { recursive: true }), 'ENOENT'],
  ])('that %s changes nothing, is reported once, and may recover', async (_, spoil, words) => {
    writeFileSync(path, text(0, 1))
    const { warnings, metric, states } = await start(50)
    await sees(0, 1)
    spoil()
    await said(words)
    const looks = async () => (await current!.get('/eldr/workers')).discovery[0].up as boolean
    for (let n = 0; n < 5; n++) expect(await looks()).toBe(false)
    expect(warnings()).toEqual([expect.stringMatching(/; keeping the workers found before$/)])
    expect(states()).toEqual({ p: 'ready', d0: 'ready', d1: 'ready' })
    expect(await metric('eldr_discovery_up', { source: 'file' })).toBe(0)
    rmSync(path, { recursive: true, force: true })
    mkdirSync(folder, { recursive: true })
    writeFileSync(path, text(1))
    await sees(1)
    expect(await isWell()).toBe(true)
  })

  it('that does not exist at first is waited for', async () => {
    path = join(folder, 'later', 'workers.yaml')
    await start(50)
    await said('ENOENT')
    expect(current!.warnings()).toEqual([expect.stringMatching(/ENOENT; no worker found yet, retrying$/)])
    expect(await current!.get('/ready')).toMatchObject({
      status: 'waiting for workers',
      discovery: [{ source: 'file', up: false, reason: 'unreadable', workers: 0 }],
    })
    mkdirSync(join(folder, 'later'))
    writeFileSync(path, text(2))
    await sees(2)
  })

  it('is polled where the file system reports no change', async () => {
    const elsewhere = mkdtempSync(join(root.path, 'elsewhere-'))
    writeFileSync(join(elsewhere, 'real.yaml'), text(0))
    symlinkSync(join(elsewhere, 'real.yaml'), path)
    await start(50)
    await sees(0)
    writeFileSync(join(elsewhere, 'real.yaml'), text(0, 1)) // in a folder that is not watched
    await sees(0, 1)
    expect(await isWell()).toBe(true)
  })

  it('that no longer names a worker lets its streams finish', async () => {
    writeFileSync(path, text(0, 1))
    const { until, states } = await start()
    await sees(0, 1)
    const streams = await heldStreams(current!, pods.decodes.slice(0, 2))
    writeFileSync(path, text(1))
    await until(() => states()['d0'] === 'draining')
    const next = await current!.post({ prompt: 'a', max_tokens: 2, stream: true })
    expect((await eventsOf(next)).at(-1)).toBe('[DONE]')
    streams.release()
    for (const events of await streams.events()) expect(events.at(-1)).toBe('[DONE]')
    await sees(1)
  })

  it('gives workers the clusters that it names', async () => {
    writeFileSync(
      path,
      `decode: [{url: "${pods.decodes[0]!.url}", id: a, cluster: 1}, {url: "${pods.decodes[1]!.url}", id: b, cluster: 0}]`,
    )
    const { until, states, view } = await start()
    await until(() => states()['a'] === 'ready' && states()['b'] === 'ready')
    expect([view('a')!.index, view('b')!.index]).toEqual([1, 0])
  })
})
