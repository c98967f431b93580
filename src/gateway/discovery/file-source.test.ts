import { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, watch, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { FileSource } from './file-source.ts'
import type { Report } from './source.ts'
import { watchedNames } from './link-names.ts'
import { readOffThread, ReadAborted } from './worker-file-off-thread.ts'

let folder: string
let path: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'eldr-file-source-'))
  path = join(folder, 'workers.yaml')
})
const followed: { stop(): void }[] = []
afterEach(() => {
  for (const source of followed.splice(0)) source.stop()
  rmSync(folder, { recursive: true, force: true })
})

/** Records the reports of a source and the texts it parsed. By default only notifications trigger it. */
function follow(pollMs = 3_600_000, file = path) {
  const [seen, read]: [Report[], string[]] = [[], []]
  const waiting = new Set<() => void>()
  const onReport = (report: Report) => {
    seen.push(report)
    for (const check of waiting) check()
  }
  followed.push(
    new FileSource(
      { path: file, pollMs },
      {},
      onReport,
      (input, signal) => (read.push(input.text), readOffThread(input, signal)),
    ),
  )
  const until = (holds: () => boolean) =>
    new Promise<void>(resolve => {
      const check = () => {
        if (!holds()) return
        waiting.delete(check)
        resolve()
      }
      waiting.add(check)
      check()
    })
  const finds = (...ids: string[]) =>
    until(() => JSON.stringify(seen.at(-1)?.found?.map(({ id }) => id)) === JSON.stringify(ids))
  return { seen, read, until, finds }
}

const text = (...hosts: string[]) => `decode: [${hosts.map(host => `http://${host}:1`).join(', ')}]`
/** Resolves when all watchers of the folder have been notified of a change of this name. */
const heard = (name: string, change: () => void) =>
  new Promise<void>(resolve => {
    const watcher = watch(folder, (_, which) => {
      if (which !== name) return
      watcher.close()
      setImmediate(resolve) // other watchers get their turn first
    })
    change()
  })

describe('file discovery', () => {
  it.each([
    ['good', text('a')],
    ['refused', 'decode: [gopher://a]'],
  ])('parses a text that is %s once, however often it polls', async (_, first) => {
    writeFileSync(path, first)
    const { seen, read, until } = follow(1)
    await until(() => seen.length >= 5)
    expect(read).toEqual([first])
    expect(new Set(seen.map(report => JSON.stringify(report))).size).toBe(1)
    writeFileSync(path, text('b'))
    await until(() => seen.at(-1)!.found?.[0]!.id === 'b:1')
    expect(read).toEqual([first, text('b')])
  })

  it('parses a text again after an aborted parse, and repeats its report until then', async () => {
    writeFileSync(path, text('a'))
    let tries = 0
    const reports: Report[] = []
    const found = await new Promise<Report['found']>(resolve => {
      const read = (...given: Parameters<typeof readOffThread>) =>
        ++tries < 3 ? Promise.reject(new ReadAborted('broken', 'slow')) : readOffThread(...given)
      const onReport = (report: Report) => (reports.push(report), report.found && resolve(report.found))
      followed.push(new FileSource({ path, pollMs: 1 }, {}, onReport, read, 50))
    })
    expect(found!.map(({ id }) => id)).toEqual(['a:1'])
    expect(tries).toBe(3)
    expect(reports.filter(({ problem }) => problem?.text === 'slow').length).toBeGreaterThan(2)
  })

  it('ignores other files in the folder', async () => {
    writeFileSync(path, text('a'))
    const { seen, finds } = follow()
    await finds('a:1')
    // A source for the other file shows when a notification has been processed.
    writeFileSync(join(folder, 'other'), text('0'))
    const other = follow(undefined, join(folder, 'other'))
    for (let n = 1; n <= 4; n++) {
      writeFileSync(join(folder, 'other'), text(`o${n}`))
      await other.finds(`o${n}:1`)
    }
    expect(seen).toHaveLength(1)
    writeFileSync(path, text('b'))
    await finds('b:1')
  })

  it('debounces changes and sees the last one', async () => {
    writeFileSync(path, text('a'))
    const { seen, finds } = follow()
    await finds('a:1')
    const startedMs = performance.now()
    const put = (hosts: string) => {
      writeFileSync(join(folder, 'next'), text(hosts))
      renameSync(join(folder, 'next'), path)
    }
    let changes = 0
    for (; changes <= 10 || performance.now() - startedMs < 600; changes++)
      await heard('workers.yaml', () => put('a'))
    put('last')
    await finds('last:1')
    expect(seen.length - 1).toBeLessThanOrEqual((performance.now() - startedMs) / 100 + 3)
  })

  it('notices a fixed file, a restored file and a replaced folder without polling', async () => {
    writeFileSync(path, 'decode: [gopher://a]')
    const { seen, until, finds } = follow()
    await until(() => seen.at(-1)?.problem?.reason === 'broken')
    writeFileSync(path, text('b'))
    await finds('b:1')
    rmSync(path)
    await until(() => seen.at(-1)?.problem?.reason === 'unreadable')
    writeFileSync(path, text('c'))
    await finds('c:1')
    mkdirSync(`${folder}.next`)
    writeFileSync(join(`${folder}.next`, 'workers.yaml'), text('d'))
    renameSync(folder, `${folder}.old`)
    renameSync(`${folder}.next`, folder)
    await finds('d:1')
    writeFileSync(path, text('e'))
    await finds('e:1')
    expect(seen.flatMap(({ problem }) => problem ?? []).map(({ reason }) => reason)).toEqual(
      expect.arrayContaining(['broken', 'unreadable']),
    )
    rmSync(`${folder}.old`, { recursive: true })
  })

  it('notices a swapped symbolic link', async () => {
    for (const release of ['1', '2']) {
      mkdirSync(join(folder, release))
      writeFileSync(join(folder, release, 'workers.yaml'), text(`r${release}`))
    }
    symlinkSync('1', join(folder, 'current'))
    symlinkSync(join('current', 'workers.yaml'), path)
    expect([...(await watchedNames(path))]).toEqual(['workers.yaml', 'current', '1'])
    const { finds } = follow()
    await finds('r1:1')
    symlinkSync('2', join(folder, 'next'))
    renameSync(join(folder, 'next'), join(folder, 'current'))
    await finds('r2:1')
  })
})

describe('watched names', () => {
  it('end at links that form a cycle, leave the folder or are broken', async () => {
    symlinkSync('b', join(folder, 'a'))
    symlinkSync('a', join(folder, 'b'))
    symlinkSync('../elsewhere/workers.yaml', join(folder, 'away'))
    symlinkSync(join(folder, '..data', 'workers.yaml'), path)
    expect([...(await watchedNames(join(folder, 'a')))]).toEqual(['a', 'b'])
    expect([...(await watchedNames(join(folder, 'away')))]).toEqual(['away'])
    expect([...(await watchedNames(path))]).toEqual(['workers.yaml', '..data'])
    expect([...(await watchedNames(join(folder, 'nothing')))]).toEqual(['nothing'])
  })
})
