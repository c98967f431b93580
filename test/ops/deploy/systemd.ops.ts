import { readFileSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import type { Settings } from '../../../src/gateway/config/settings.ts'
import { eldr, ROOT, run, tool } from './tools.ts'

const analyze = tool('systemd-analyze')
const FOLDER = join(ROOT, 'deploy', 'systemd')
const UNIT = join(FOLDER, 'eldr.service')
const unit = readFileSync(UNIT, 'utf8')
const setting = (name: string): string[] =>
  [...unit.matchAll(new RegExp(`^${name}=(.*)$`, 'gm'))].map(([, value]) => value!)

async function inFolder<T>(use: (folder: string) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), 'eldr-unit-'))
  try {
    return await use(folder)
  } finally {
    await rm(folder, { recursive: true })
  }
}

describe.runIf(analyze !== undefined)('the systemd unit', () => {
  it('passes systemd-analyze verify, which detects an unknown setting', async () => {
    expect(await run(analyze!, ['verify', UNIT])).toEqual({ code: 0, stdout: '', stderr: '' })
    await inFolder(async folder => {
      await writeFile(join(folder, 'eldr.service'), unit.replace('NoNewPrivileges=', 'NoNewPrivilege='))
      expect((await run(analyze!, ['verify', join(folder, 'eldr.service')])).stderr).toContain(
        'NoNewPrivilege',
      )
    })
  })

  it('has an exposure of at most 1.5 of 10', async () => {
    const { code, stdout } = await run(analyze!, [
      'security',
      '--offline=true',
      '--threshold=15',
      '--no-pager',
      UNIT,
    ])
    expect(stdout).toMatch(/Overall exposure level for eldr\.service: [01]\.\d/)
    expect(code).toBe(0)
  })
})

describe('the files of the systemd unit', () => {
  it('replace the gateway on reload with the command line that starts it', () => {
    expect(setting('ExecReload')).toEqual([`${setting('ExecStart')[0]!} --replace`])
  })

  it('have a configuration and an environment that the gateway accepts, with time to drain', async () => {
    await inFolder(async folder => {
      const file = join(FOLDER, 'eldr.yaml.example')
      const variables = readFileSync(join(FOLDER, 'eldr.env.example'), 'utf8')
        .split('\n')
        .filter(line => /^[A-Z]/.test(line))
      const credentials = setting('LoadCredential').map(value => value.split(':')[0]!)
      for (const name of credentials) await writeFile(join(folder, name), `the-${name}\n`)
      const given = setting('Environment').flatMap(value =>
        value.replaceAll('%d', folder).replaceAll('%S', '/var/lib').split(' '),
      )
      const env = Object.fromEntries(
        [...variables, ...given].map(pair => [
          pair.slice(0, pair.indexOf('=')),
          pair.slice(pair.indexOf('=') + 1),
        ]),
      )
      const flags = setting('ExecStart')[0]!
        .split(' ')
        .slice(3)
        .map(arg => (arg === '/etc/eldr/eldr.yaml' ? file : arg))
      expect(setting('ExecStart')[0]).toMatch(/^\/usr\/bin\/env eldr serve /)
      const { code, stdout, stderr } = await eldr(['config', 'print', '--json', ...flags], { env })
      expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
      const { settings, origins } = JSON.parse(stdout) as {
        settings: Settings
        origins: Record<string, unknown>
      }
      expect(settings.server).toMatchObject({ host: '0.0.0.0', port: 8000, metricsPort: 9464 })
      // Both credentials were read: masked, but there.
      expect(settings.server.apiKeys).toHaveLength(1)
      expect(settings.server.adminToken).toBeDefined()
      // ProtectSystem=strict leaves only the state directory writable.
      expect(settings.adapt.folder).toMatch(new RegExp(`^/var/lib/${setting('StateDirectory')[0]}/`))
      expect(Object.keys(origins).length).toBeGreaterThan(5)
      expect(Number(setting('TimeoutStopSec')[0]) * 1000).toBeGreaterThanOrEqual(
        settings.server.shutdownGraceMs + 5_000,
      )
    })
  })
})
