import { execFile, spawn } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { configPage, schemaText } from '../src/gateway/config/schema/reference.ts'
import { temporaryFolder } from './trace-support.ts'

const dist = new URL('../dist/', import.meta.url)
const cli = fileURLToPath(new URL('cli/main.js', dist))
const folder = temporaryFolder()
afterAll(() => folder.remove())

function file(name: string, text: string): string {
  const path = join(folder.path, name)
  writeFileSync(path, text)
  return path
}

/** The environment without ELDR variables. */
const own = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('ELDR_')))

/** Runs the real program in its own process. */
function eldr(args: readonly string[], variables: Record<string, string> = {}, node: readonly string[] = []) {
  return new Promise<{ code: number; out: string; err: string }>(resolve => {
    execFile(
      process.execPath,
      [...node, cli, ...args],
      { env: { ...own, ...variables } },
      (error, out, err) => resolve({ code: error === null ? 0 : Number(error.code), out, err }),
    )
  })
}

const good = file(
  'good.yaml',
  'workers:\n  prefill: [http://p:1]\n  decode: [http://d:1, http://e:1]\nserver:\n  apiKeys: [sk-sesame]\n',
)

describe('eldr config check', () => {
  it('says that a file is valid', async () => {
    expect(await eldr(['config', 'check', good])).toEqual({ code: 0, out: `${good}: valid\n`, err: '' })
  })

  it('lists all problems on stderr, with exit code 2', async () => {
    const bad = file('bad.yaml', 'routing:\n  polcy: eldr\n  tau: wide\nserver:\n  port: 99999\n')
    const { code, out, err } = await eldr(['config', 'check', bad], { ELDR_PORT: '1' })
    expect([code, out]).toEqual([2, ''])
    expect(err.split('\n').slice(0, 3)).toEqual([
      `${bad}:2:3: unknown key routing.polcy: did you mean routing.policy?`,
      `${bad}:3:8: routing.tau: expected a number from 0 to 2, found "wide"`,
      `${bad}:5:9: server.port: expected a whole number from 0 to 65535, found 99999`,
    ])
    expect(err).toMatch(/found 3 problems.*\[ELDR_CONFIG_INVALID\]\n$/)
  })

  it('reports a missing file with exit code 1', async () => {
    const { code, err } = await eldr(['config', 'check', join(folder.path, 'nowhere')])
    expect(code).toBe(1)
    expect(err).toContain('[ELDR_FILE_UNREADABLE]')
  })
})

describe('eldr config print', () => {
  const args = [
    'config',
    'print',
    '--config',
    good,
    '--port',
    '9000',
    '--decode',
    'http://f:1',
    '--decode',
    'http://g:1',
  ]

  it('shows the effective values as YAML with their origins and without secrets', async () => {
    const { code, out, err } = await eldr(args, { ELDR_TAU: '0.2', ELDR_ADMIN_TOKEN: 'sk-open' })
    expect([code, err]).toEqual([0, ''])
    for (const line of [
      'port: 9000 # --port',
      'tau: 0.2 # ELDR_TAU',
      'host: 127.0.0.1 # default',
      'adminToken: "********" # ELDR_ADMIN_TOKEN',
    ])
      expect(out).toContain(line)
    expect(out).toContain(`# ${good}:5:12\n`)
    expect(out).not.toContain('sk-')
    const { workers } = parse(out) as { workers: { decode: { url: string }[] } }
    expect(workers.decode.map(({ url }) => url)).toEqual(['http://f:1', 'http://g:1'])
  })

  it('prints a valid configuration file: reading it gives the same settings', async () => {
    const printed = (await eldr([...args, '--json'], { ELDR_API_KEYS: 'a' })).out
    const again = file('again.yaml', (await eldr(args)).out.replace('"********"', 'a'))
    const reprinted = (await eldr(['config', 'print', '--json', '--config', again])).out
    const { settings } = JSON.parse(reprinted) as { settings: unknown }
    expect(settings).toEqual((JSON.parse(printed) as { settings: unknown }).settings)
  })

  it('prints the same as JSON', async () => {
    const { settings, origins } = JSON.parse((await eldr([...args, '--json'])).out) as {
      settings: { server: { port: number; apiKeys: string[] } }
      origins: Record<string, unknown>
    }
    expect([settings.server.port, settings.server.apiKeys]).toEqual([9000, ['********']])
    expect(origins['server.port']).toEqual({ kind: 'flag', name: '--port' })
  })

  it('warns on stderr', async () => {
    const { code, out, err } = await eldr(['config', 'print', '--decode', 'http://d:1'])
    expect(code).toBe(0)
    expect(out).toContain('apiKeys: [] # default\n')
    expect(err).toBe('warning: no prefill workers: set workers.prefill (--prefill)\n')
  })

  it.each([
    [['--polcy', 'jsq'], /Did you mean --policy\?/],
    [
      ['--port', 'x', '--tau', '-1'],
      /^--port: server\.port: .*\n--tau: routing\.tau: .*found "-1"\n.*ELDR_CONFIG_INVALID/,
    ],
    [['--config', ''], /an empty name for the configuration file.*ELDR_USAGE/],
    [['--max-concurrent-requests', '-2'], /expected a whole number from 0 to 1000000, found "-2"/],
  ])('rejects wrong usage with exit code 2: %j', async (wrong, message) => {
    const { code, out, err } = await eldr(['config', 'print', ...wrong])
    expect([code, out]).toEqual([2, ''])
    expect(err).toMatch(message)
  })
})

describe('published files', () => {
  const published = (name: string) => readFileSync(new URL(`../docs/${name}`, import.meta.url), 'utf8')

  it('the configuration page is up to date: run `npm run build && npm run docs` if not', () => {
    expect(published('reference/config.md')).toBe(configPage())
  })

  it('the JSON Schema is up to date and equals the output of `eldr config schema`', async () => {
    expect(published('eldr-config.schema.json')).toBe(schemaText())
    expect((await eldr(['config', 'schema'])).out).toBe(schemaText())
  })

  it('every key has a description', () => {
    const rows = configPage()
      .split('\n')
      .filter(line => line.startsWith('| `'))
    expect(rows.length).toBeGreaterThan(60)
    for (const row of rows) expect(row).toMatch(/[a-z].*\. \|$/)
  })

  it('the example is valid', async () => {
    const [, example] = /```yaml\n([^`]*)```/.exec(configPage())!
    expect((await eldr(['config', 'check', file('example.yaml', example!)])).code).toBe(0)
  })
})

describe('packages', () => {
  /** Writes the name of every package module to stderr as it is loaded. */
  const hook = `export async function load(url, context, next) {
    const name = /node_modules\\/([^/]+)/.exec(url)?.[1]
    if (name) (await import('node:fs')).writeSync(2, 'loaded ' + name + '\\n')
    return next(url, context)
  }`
  const register = `import { register } from 'node:module'; register(${JSON.stringify(`data:text/javascript,${encodeURIComponent(hook)}`)})`
  const watch = ['--import', `data:text/javascript,${encodeURIComponent(register)}`]
  const loadedBy = async (...args: string[]) =>
    [
      ...new Set(
        [...(await eldr(args, {}, watch)).err.matchAll(/^loaded (\S+)$/gm)].map(([, name]) => name!),
      ),
    ].toSorted()

  it.each([[['--help']], [['serve', '--help']], [['config', 'print', '--help']], [['config', '--help']]])(
    'other than commander are not loaded for %j',
    async args => {
      expect(await loadedBy(...args)).toEqual(['commander'])
    },
  )

  it('zod and yaml are loaded to read a configuration', async () => {
    expect(await loadedBy('config', 'check', good)).toEqual(['commander', 'yaml', 'zod'])
  })
})

describe('eldr serve', () => {
  /**
   * The action with a gateway that does nothing; `start` and `stop` are code to run when it starts and stops.
   */
  function serve(values: Record<string, string | true>, { start = '', stop = '' } = {}) {
    const script = file(
      'serve.mjs',
      `import { once } from 'node:events'
       import { createServer } from 'node:http'
       import { serveAction } from ${JSON.stringify(new URL('cli/serve-action.js', dist).href)}
       await serveAction(new Map(Object.entries(${JSON.stringify(values)})), async settings => {
         const server = createServer().listen(0)
         console.log('starting')
         ${start}
         return { url: 'http://' + settings.server.host, async stop() { console.log('stopping'); ${stop}; server.close() } }
       })`,
    )
    const child = spawn(process.execPath, [script], { env: { ...own, ELDR_ADMIN_TOKEN: 'sk-open' } })
    const said = { stdout: '', stderr: '' }
    for (const stream of ['stdout', 'stderr'] as const)
      child[stream].on('data', chunk => (said[stream] += String(chunk)))
    const until = (stream: 'stdout' | 'stderr', text: string) =>
      new Promise<void>(resolve => child[stream].on('data', () => said[stream].includes(text) && resolve()))
    const ended = new Promise<number | null>(resolve => child.once('close', resolve))
    return { child, said, until, ended }
  }

  it('rejects an invalid configuration with exit code 2, before anything listens', async () => {
    const { code, out, err } = await eldr(['serve', '--policy', 'eldr', '--port', '70000'])
    expect([code, out]).toEqual([2, ''])
    expect(err).toMatch(
      /^--policy: routing\.policy: eldr needs an artifact.*\n--port: server\.port: expected.*\n.*\[ELDR_CONFIG_INVALID\]\n$/,
    )
  })

  it('runs the gateway until a signal stops it', async () => {
    const child = spawn(process.execPath, [cli, 'serve', '--port', '0', '--policy', 'jsq'], {
      env: own,
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    let err = ''
    let stopped = false // a second signal would end it at once
    child.stderr.on('data', chunk => {
      err += String(chunk)
      if (!stopped && err.includes('listening on http://127.0.0.1:')) stopped = child.kill('SIGTERM')
    })
    expect(await new Promise(resolve => child.once('close', resolve))).toBe(0)
    expect(err).toContain('stopped')
  })

  it.each(['SIGTERM', 'SIGINT'] as const)('drains and stops on %s with exit code 0', async signal => {
    const { child, said, until, ended } = serve({ '--host': '0.0.0.0' })
    await until('stderr', 'listening on http://0.0.0.0')
    child.kill(signal)
    expect(await ended).toBe(0)
    expect(said.stdout).toBe('starting\nstopping\n')
    const [warning, , configuration] = said.stderr
      .split('\n')
      .map(line => JSON.parse(line || '{}') as Record<string, unknown>)
    expect(warning).toMatchObject({ level: 40, msg: 'no prefill workers: set workers.prefill (--prefill)' })
    expect(configuration).toMatchObject({
      level: 30,
      msg: 'configuration',
      settings: { server: { host: '0.0.0.0', adminToken: '********' } },
      origins: {
        'server.host': { kind: 'flag', name: '--host' },
        'server.adminToken': { kind: 'environment' },
      },
    })
    expect(said.stderr).not.toContain('sk-')
  })

  it('exits immediately on a second signal, with exit code 130', async () => {
    const { child, until, ended } = serve({}, { stop: 'await new Promise(() => {})' })
    await until('stderr', 'listening')
    child.kill('SIGTERM')
    await until('stdout', 'stopping')
    child.kill('SIGINT')
    expect(await ended).toBe(130)
  })

  it('stops once it is up if a signal arrives while it starts', async () => {
    const { child, said, until, ended } = serve({}, { start: `await once(process, 'SIGTERM')` })
    await until('stdout', 'starting')
    child.kill('SIGTERM')
    expect(await ended).toBe(0)
    expect(said.stdout).toBe('starting\nstopping\n')
  })

  it('logs only messages of its log level', async () => {
    const { child, said, until, ended } = serve({ '--log-level': 'error' })
    await until('stdout', 'starting')
    child.kill('SIGTERM')
    expect(await ended).toBe(0)
    expect(said.stderr).toBe('')
  })
})
