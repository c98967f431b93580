import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { loadSettings } from './load.ts'
import { asJson, asYaml } from './show.ts'
import { maskedStore, storeUrlProblem } from './store-url.ts'

const folder = mkdtempSync(join(tmpdir(), 'eldr-config-'))
afterAll(() => rmSync(folder, { recursive: true }))
function fileWith(text: string): string {
  const path = join(folder, 'some.yaml')
  writeFileSync(path, text)
  return path
}

describe('the URL of a store', () => {
  it.each([
    'redis://a',
    'rediss://a:6380/3',
    'valkey://user:p%40ss@[::1]:6379',
    'valkeys://:pw@a/0',
    'redis://a/',
  ])('may be %s', url => {
    expect(storeUrlProblem(url)).toBeUndefined()
  })

  it.each([
    ['http://a:6379', /scheme is one of redis, rediss, valkey, valkeys/],
    ['a:6379', /expected a URL such as/],
    ['redis:///0', /expected a URL such as/],
    ['redis://a/x', /database number/],
    ['redis://a/0?tls=1', /nothing after/],
    ['redis://:%zz@a', /two hexadecimal digits/],
    ['redis://:********@a', /password masked/],
  ])('may not be %s', (url, words) => {
    expect(storeUrlProblem(url)).toMatch(words)
  })

  it.each([
    ['redis://u:sk-1@a:6379/0', 'redis://u:********@a:6379/0'],
    ['redis://:sk-1@a', 'redis://:********@a'],
    ['redis://:s@k:1@a', 'redis://:********@a'],
    ['redis://:sk 1@a', 'redis://:********@a'],
    ['redis://u@a', 'redis://u@a'],
    ['redis://a:6379', 'redis://a:6379'],
  ])('%s is shown as %s', (url, shown) => {
    expect(maskedStore(url)).toBe(shown)
  })

  it('is never shown with its password, even in an error', async () => {
    const loaded = await loadSettings({ env: { ELDR_REPLICA_STORE: 'redis://u:sk-1@a:6379' } })
    for (const text of [asYaml(loaded), JSON.stringify(asJson(loaded))]) {
      expect(text).not.toContain('sk-1')
      expect(text).toContain('redis://u:********@a:6379')
    }
    const wrong = await loadSettings({ env: { ELDR_REPLICA_STORE: 'redis://u:sk-1@a/x' } }).catch(
      (error: unknown) => error,
    )
    expect(JSON.stringify(wrong) + String(wrong)).not.toContain('sk-1')
    expect(JSON.stringify(wrong)).toContain('database number')
  })

  it('needs leases longer than the publishing interval', async () => {
    const wrong = await loadSettings({ file: fileWith('replicas: { leaseMs: 100, unionMs: 50 }') }).catch(
      (error: unknown) => error,
    )
    expect(JSON.stringify(wrong)).toContain(
      'replicas.leaseMs 100 is less than three times replicas.unionMs 50',
    )
  })
})
