import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startGatewayProcess } from './gateway-process.ts'
import { output, ROOT, run, tool } from './tools.ts'

interface ImageConfig {
  readonly User: string
  readonly Env: readonly string[]
  readonly Entrypoint: readonly string[]
  readonly Cmd: readonly string[]
  readonly Healthcheck: { readonly Test: readonly string[] }
  readonly Labels: Readonly<Record<string, string>>
}

/** A build of the real thing takes a minute and needs root and buildah: ELDR_TEST_IMAGE=1 asks for it. */
const wanted = process.env['ELDR_TEST_IMAGE'] === '1'
const able = process.getuid?.() === 0 && tool('buildah') !== undefined

describe.runIf(wanted)('the image, built by buildah on stand-ins for its base images', () => {
  let folder: string
  let root: string
  let config: ImageConfig
  const buildah = (...args: string[]) =>
    output('buildah', [
      '--root',
      join(folder, 'storage'),
      '--runroot',
      join(folder, 'run'),
      '--storage-driver',
      'vfs',
      ...args,
    ])

  beforeAll(async () => {
    if (!able) throw new Error('ELDR_TEST_IMAGE=1 needs root and buildah: apt-get install buildah crun')
    folder = await mkdtemp(join(tmpdir(), 'eldr-image-'))
    await output('bash', [join(ROOT, 'scripts', 'image-here.sh'), folder])
    config = (
      JSON.parse(await buildah('inspect', '--type', 'image', 'eldr')) as { Docker: { config: ImageConfig } }
    ).Docker.config
    root = (await buildah('mount', (await buildah('from', '--pull-never', 'eldr')).trim())).trim()
  }, 600_000)
  afterAll(async () => {
    if (folder !== undefined) await rm(folder, { recursive: true, force: true })
  })

  it('runs as PID 1, not as root, on a read-only file system, and stops on SIGTERM', async () => {
    const inside = ['chroot', `--userspec=${config.User}`, root]
    const script = join(folder, 'start.sh')
    const env = Object.fromEntries(
      [...config.Env, 'ELDR_PORT=0'].map(pair => pair.split('=', 2) as [string, string]),
    )
    await writeFile(
      script,
      `mount --bind -o ro "${root}" "${root}" && mount -t proc proc "${root}/proc" && exec "$@"\n`,
    )
    const args = [
      '--mount',
      '--pid',
      '--fork',
      '--kill-child',
      'bash',
      script,
      ...inside,
      ...config.Entrypoint,
      ...config.Cmd,
    ]
    const gateway = await startGatewayProcess('unshare', args, { env })
    const pid = (await output('pgrep', ['-P', String(gateway.child.pid)])).trim()
    const status = await output('cat', [`/proc/${pid}/status`])
    expect(status).toMatch(/^NSpid:\t\d+\t1$/m)
    expect(status).toMatch(/^Uid:\t65532\t65532\t65532\t65532$/m)
    expect(await output('cat', [`/proc/${pid}/mountinfo`])).toMatch(/^\d+ \d+ \S+ \S+ \/ ro\b/m)
    const { port } = new URL(gateway.url)
    const [kind, ...check] = config.Healthcheck.Test
    expect(kind).toBe('CMD')
    expect(
      await run('chroot', [...inside.slice(1), ...check], { env: { PATH: env['PATH'], ELDR_PORT: port } }),
    ).toEqual({ code: 0, stdout: '', stderr: '' })
    const ended = new Promise(resolve => gateway.child.once('exit', resolve))
    await output('kill', ['-TERM', pid])
    expect(await ended).toBe(0)
  })

  it('reports its own name', () => {
    expect(config.Labels).toMatchObject({
      'org.opencontainers.image.title': 'eldr',
      'org.opencontainers.image.licenses': 'Apache-2.0',
    })
  })
})
