import { readFileSync } from 'node:fs'
import { chmod, cp, mkdir, mkdtemp, readdir, rm, stat } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { environmentOf, execForm, lastOf, type Stage, stagesOf } from './containerfile.ts'
import { type GatewayProcess, startGatewayProcess } from './gateway-process.ts'
import { output, ROOT, run, tool } from './tools.ts'

const hadolint = tool('hadolint')
const FILES = ['Containerfile', 'vllm.Containerfile'].map(name => join(ROOT, 'deploy', name))
const [build, final] = stagesOf(readFileSync(FILES[0]!, 'utf8')) as [Stage, Stage]

/** Numbers of the user, where this process may become another one. */
const [uid, gid] = lastOf(final, 'USER').split(':').map(Number) as [number, number]
const asUser: { uid?: number; gid?: number } = process.getuid?.() === 0 ? { uid, gid } : {}
const userOf = async ({ child }: GatewayProcess) => (await stat(`/proc/${child.pid}`)).uid

async function bytesIn(folder: string): Promise<number> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const sizes = await Promise.all(
    entries
      .filter(entry => entry.isFile())
      .map(async entry => (await stat(join(entry.parentPath, entry.name))).size),
  )
  return sizes.reduce((sum, size) => sum + size, 0)
}

describe.runIf(hadolint !== undefined)('the container files', () => {
  it.each(FILES)('pass hadolint: %s', async file => {
    expect(await run(hadolint!, ['--failure-threshold', 'style', file])).toEqual({
      code: 0,
      stdout: '',
      stderr: '',
    })
  })
})

describe('the build contexts', () => {
  it('are the same for Podman and Docker, and contain all that is copied', () => {
    const [podman, docker] = ['.containerignore', '.dockerignore'].map(name =>
      readFileSync(join(ROOT, name), 'utf8'),
    ) as [string, string]
    expect(docker).toBe(podman)
    const copied = build.steps
      .filter(({ instruction }) => instruction === 'COPY')
      .flatMap(({ value }) => value.split(' ').slice(0, -1))
    const shown = new Set(
      podman
        .split('\n')
        .filter(line => line.startsWith('!'))
        .map(line => line.slice(1)),
    )
    expect(copied.length).toBeGreaterThan(8)
    expect(copied.filter(path => !shown.has(path.split('/')[0]!))).toEqual([])
  })
})

describe('the image, made step by step in an empty folder', () => {
  let folder: string
  let gateway: GatewayProcess | undefined
  const here = (path: string) =>
    path.replaceAll(/(?<=^|[\s"])\/(src|image|app)\b/g, (_, name: string) => join(folder, name))
  const node = (args: readonly string[]) =>
    args.map(arg => (arg === '/nodejs/bin/node' ? process.execPath : here(arg)))

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'eldr-image-'))
    await chmod(folder, 0o755)
    let at = folder
    const env = { ...process.env }
    for (const { instruction, value } of build.steps) {
      if (instruction === 'WORKDIR') await mkdir((at = here(value)))
      else if (instruction === 'ARG') Object.assign(env, environmentOf(value))
      else if (instruction === 'COPY') {
        const [to, ...from] = value.split(' ').toReversed() as [string, ...string[]]
        for (const path of from)
          await cp(
            join(ROOT, path),
            to.endsWith('/') ? join(at, to, path.split('/').at(-1)!) : join(at, to),
            { recursive: true },
          )
      } else if (instruction === 'RUN') await output('sh', ['-c', here(value)], { cwd: at, env })
      else throw new Error(`this test does not know ${instruction}`)
    }
    await cp(join(folder, 'image'), join(folder, 'app'), { recursive: true })
  })
  afterAll(async () => {
    await gateway?.stop()
    await rm(folder, { recursive: true, force: true })
  })

  it('contains what it needs to serve, and little else', async () => {
    expect(final.steps.find(({ instruction }) => instruction === 'COPY')).toMatchObject({
      flags: { from: build.name },
      value: '/image /app',
    })
    expect((await readdir(join(folder, 'app'))).toSorted()).toEqual([
      'LICENSE',
      'dist',
      'healthcheck.mjs',
      'node_modules',
      'package.json',
      'profiles',
    ])
    const { dependencies } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
      dependencies: object
    }
    const installed = await readdir(join(folder, 'app', 'node_modules'))
    expect(installed).toEqual(
      expect.arrayContaining(Object.keys(dependencies).map(name => name.split('/')[0])),
    )
    expect(installed.filter(name => /^(typescript|vitest|rolldown|oxlint|preact)$/.test(name))).toEqual([])
    const megabytes = (await bytesIn(join(folder, 'app'))) / 1e6
    console.log(`/app of the image: ${megabytes.toFixed(1)} MB`)
    expect(megabytes).toBeLessThan(25)
  })

  it('serves as an unprivileged user, is healthy by its own check, and stops on SIGTERM', async () => {
    const env = { ...environmentOf(lastOf(final, 'ENV')), PATH: '/usr/bin:/bin', ELDR_PORT: '0' }
    const [command, ...args] = node([
      ...execForm(lastOf(final, 'ENTRYPOINT')),
      ...execForm(lastOf(final, 'CMD')),
    ])
    const cwd = here(lastOf(final, 'WORKDIR'))
    gateway = await startGatewayProcess(command!, args, { cwd, env, ...asUser })
    expect(await userOf(gateway)).toBe(asUser.uid ?? process.getuid?.())
    expect(await userOf(gateway)).not.toBe(0)
    const [check, ...checkArgs] = node(execForm(lastOf(final, 'HEALTHCHECK').replace(/^CMD /, '')))
    const port = new URL(gateway.url).port
    expect(await run(check!, checkArgs, { cwd, env: { ELDR_PORT: port } })).toEqual({
      code: 0,
      stdout: '',
      stderr: '',
    })
    expect(
      await run(check!, checkArgs, { cwd, env: { ELDR_HEALTH_URL: `${gateway.url}/ready` } }),
    ).toMatchObject({ code: 1, stderr: expect.stringContaining('answered 503') })
    expect(await gateway.stop()).toBe(0)
    gateway = undefined
    expect(await run(check!, checkArgs, { cwd, env: { ELDR_PORT: port } })).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('ECONNREFUSED'),
    })
  })

  it('is not healthy without a response in time, nor with an invalid address', async () => {
    const silent = createServer(() => undefined)
    await new Promise<void>(resolve => silent.listen(0, '127.0.0.1', resolve))
    const { port } = silent.address() as { port: number }
    const check = (env: NodeJS.ProcessEnv) =>
      run(process.execPath, [join(folder, 'app', 'healthcheck.mjs')], { env })
    expect(await check({ ELDR_PORT: String(port) })).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('did not answer within'),
    })
    expect(await check({ ELDR_HEALTH_URL: 'ftp://a' })).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('must be an http or https URL'),
    })
    silent.close()
  })
})
