import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { publint } from 'publint'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { output, ROOT, run } from '../deploy/tools.ts'

interface Packed {
  readonly filename: string
  readonly size: number
  readonly unpackedSize: number
  readonly files: readonly { readonly path: string; readonly size: number; readonly mode: number }[]
}

const QUIET = ['--no-audit', '--no-fund', '--no-update-notifier', '--loglevel=error']
let folder: string
let packed: Packed
const installed = (...path: string[]) => join(folder, 'project', ...path)
/** As a user calls it, through the link that npm made. */
const eldr = (...args: string[]) => run(installed('node_modules', '.bin', 'eldr'), args, { cwd: installed() })

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'eldr-package-'))
  // dist/ has just been built; `prepare` would build it again under the feet of other tests.
  const text = await output('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', folder])
  packed = (JSON.parse(text) as Packed[])[0]!
  await mkdir(installed())
  await writeFile(installed('package.json'), '{ "private": true }\n')
  await output('npm', ['install', '--ignore-scripts', ...QUIET, join(folder, packed.filename)], {
    cwd: installed(),
  })
})
afterAll(() => rm(folder, { recursive: true, force: true }))

describe('the npm package', () => {
  it('contains what commands and operators need, and nothing for development', () => {
    const paths = packed.files.map(({ path }) => path)
    console.log(
      `npm package: ${(packed.size / 1e6).toFixed(1)} MB, unpacked ${(packed.unpackedSize / 1e6).toFixed(1)} MB, ${paths.length} files`,
    )
    for (const wanted of [
      'dist/cli/main.js',
      'dist/dashboard/index.html',
      'profiles/h200-first.json',
      'data/lab16-task.evaluation.safetensors',
      'docs/eldr-config.schema.json',
      'deploy/systemd/eldr.service',
      'deploy/helm/eldr/values.yaml',
      'python/pyproject.toml',
      'python/eldr_vllm/connector.py',
      'LICENSE',
      'README.md',
    ])
      expect(paths).toContain(wanted)
    expect(
      paths.filter(path =>
        /\.test\.|\.map$|__pycache__|\.pyc$|^(src|test|bench|scripts|dashboard)\/|^python\/(tests|bench)|(^|\/)\.(npmrc|env|git)/.test(
          path,
        ),
      ),
    ).toEqual([])
    expect(paths.filter(path => path.startsWith('models/')).length).toBeGreaterThan(3)
    expect(packed.size).toBeLessThan(40e6)
    expect(packed.files.find(({ path }) => path === 'dist/cli/main.js')!.mode & 0o111).toBe(0o111)
  })

  it('has no source map of a missing file', async () => {
    const scripts = packed.files.filter(({ path }) => path.endsWith('.js'))
    expect(scripts.length).toBeGreaterThan(100)
    const mapped = await Promise.all(
      scripts.map(async ({ path }) =>
        (await readFile(join(ROOT, path), 'utf8')).includes('sourceMappingURL=') ? [path] : [],
      ),
    )
    expect(mapped.flat()).toEqual([])
  })

  it('passes publint, strictly', async () => {
    const bytes = await readFile(join(folder, packed.filename))
    const tarball = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength)
    const { messages } = await publint({ pack: { tarball }, strict: true })
    expect(messages).toEqual([])
  })
})

describe('the package, installed from its file in an empty folder', () => {
  it('installs its dependencies, and none for development', async () => {
    const { dependencies } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')) as {
      dependencies: Record<string, string>
    }
    const names = await readdir(installed('node_modules'))
    expect(names).toEqual(
      expect.arrayContaining(['eldr', ...Object.keys(dependencies).map(name => name.split('/')[0])]),
    )
    expect(names.filter(name => /^(typescript|vitest|rolldown|oxlint|publint)$/.test(name))).toEqual([])
    expect(existsSync(installed('node_modules', 'eldr', 'src'))).toBe(false)
  })

  it('prints its version, also through npx', async () => {
    const { version } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')) as { version: string }
    expect(await eldr('--version')).toEqual({ code: 0, stdout: `${version}\n`, stderr: '' })
    expect((await output('npx', ['--no-install', 'eldr', '--version'], { cwd: installed() })).trim()).toBe(
      version,
    )
  })

  it('runs its demo in an empty folder with the files of the package', async () => {
    const { code, stdout, stderr } = await eldr(
      'demo',
      '--prefill',
      '1',
      '--decode',
      '2',
      '--rate',
      '45',
      '--seconds',
      '2',
      '--speed',
      '1',
      '--json',
      '--quiet',
    )
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    const result = JSON.parse(stdout) as { policies: { policy: string; live: { requests: object } }[] }
    expect(result).toMatchObject({ format: 'eldr.demo.v1', outputsIdentical: true, requests: 90 })
    expect(result.policies.map(({ policy }) => policy)).toEqual(['round_robin', 'eldr', 'union'])
    for (const { live } of result.policies) expect(live.requests).toMatchObject({ sent: 90, failed: 0 })
    expect(await readFile(installed('eldr-out', 'demo.html'), 'utf8')).toContain('<svg')
  })

  it('has the model that the tiny back end computes', async () => {
    const { code, stdout } = await eldr(
      'inspect',
      installed('node_modules', 'eldr', 'data', 'tiny6-prompts.evaluation.safetensors'),
    )
    expect(code).toBe(0)
    expect(stdout).toContain('tiny6')
    expect(await readdir(installed('node_modules', 'eldr', 'models', 'tiny6'))).toEqual(
      await readdir(join(ROOT, 'models', 'tiny6')),
    )
  })
})
