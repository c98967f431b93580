import { execFile, spawn } from 'node:child_process'
import { closeSync, existsSync, mkdirSync, openSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, describe, expect, it } from 'vitest'
import { shipped } from './data.ts'
import { temporaryFolder } from './trace-support.ts'

const cli = fileURLToPath(new URL('../dist/cli/main.js', import.meta.url))
const folder = temporaryFolder()
afterAll(() => folder.remove())
const file = (name: string) => join(folder.path, name)
const TASK = shipped('lab16-task.calibration')

/** Runs the real program in a process of its own. */
function eldr(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  return new Promise(resolve => {
    execFile(process.execPath, [cli, ...args], { maxBuffer: 1 << 26 }, (error, out, err) =>
      resolve({ code: error === null ? 0 : Number(error.code), out, err }),
    )
  })
}
const fitArgs = (out: string, ...more: string[]) => ['fit', TASK, '--workers', '8', '--out', file(out), '--restarts', '1', ...more]

describe('eldr', () => {
  it('without a command shows help with examples that work as they stand', async () => {
    const { code, out } = await eldr()
    expect(code).toBe(0)
    for (const word of ['fit', 'refit', 'inspect', 'Examples:']) expect(out).toContain(word)
  })

  it('says its version', async () => {
    const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as { version: string }
    expect((await eldr('--version')).out.trim()).toBe(version)
  })

  it.each([
    [['fitt'], /Did you mean fit\?/],
    [['fit', TASK], /--workers/],
    [['fit', TASK, '-k', '0', '-o', 'x'], /whole number from 1/],
    [['fit', TASK, '-k', '4', '-o', 'x', '--transform', 'idf'], /auto or one of count, count-idf/],
    [['fit', TASK, '-k', '4', '-o', 'x', '--layers', '5-3'], /such as 0,3,8-11/],
    [['fit', TASK, '-k', '4', '-o', 'x', '--balance', 'some'], /exact, none/],
    [['inspect'], /missing required argument/],
    [['inspect', TASK, '--jsn'], /Did you mean --json\?/],
    [['fit', TASK, '-k', '4', '-o', TASK], /file of its own for each output.*ELDR_USAGE/],
    [['fit', TASK, '-k', '4', '-o', ''], /empty name for an output/],
    [['fit', TASK, '-k', '4', '-o', file('x'), '--placement-out', file('y')], /--placement-out without --ranks/],
  ])('answers wrong usage with exit code 2 and what is right: %j', async (args, message) => {
    const { code, out, err } = await eldr(...args)
    expect(err).toMatch(message)
    expect(out).toBe('')
    expect(code).toBe(2)
  })

  it.each([
    [['inspect', file('nowhere')], 'ELDR_FILE_UNREADABLE'],
    [['inspect', folder.path], 'ELDR_FILE_UNREADABLE'],
    [['inspect', cli], 'ELDR_FILE_NOT_SAFETENSORS'],
    [['refit', TASK, '-k', '4', '-o', file('x')], 'ELDR_FILE_WRONG_KIND'],
    [['fit', TASK, '-k', '501', '-o', file('x')], 'ELDR_TRACE_TOO_SMALL'],
    [['fit', TASK, '-k', '4', '-o', join(folder.path, 'no', 'folder')], 'ELDR_FILE_UNWRITABLE'],
    [['fit', TASK, '-k', '4', '-o', folder.path], 'ELDR_FILE_UNWRITABLE'],
    [['fit', TASK, '-k', '4', '-o', file('x'), '--layers', '99'], 'ELDR_FIT_BAD_OPTION'],
  ])('answers a failure with exit code 1 and a coded line on stderr, no stack: %j', async (args, errorCode) => {
    const { code, out, err } = await eldr(...args)
    expect(code).toBe(1)
    expect(out).toBe('')
    expect(err).toContain(`[${errorCode}]`)
    expect(err).not.toMatch(/\n\s+at /)
  })
})

describe('eldr fit', () => {
  it('writes artifact, placement and report, and prints tables without colour codes into a pipe', async () => {
    const { code, out, err } = await eldr(...fitArgs('a.artifact.safetensors', '--ranks', '4', '--report', file('a.html')))
    expect(code).toBe(0)
    const escape = String.fromCharCode(27)
    expect(out + err).not.toContain(escape)
    for (const text of ['500 requests × 16 layers × 128 experts', 'count-idf', 'Clusters, one for each of 8', 'medical', 'fullest rank'])
      expect(out).toContain(text)
    for (const stage of ['read the trace', 'ρ by transform', 'layer selection', 'clusters', 'placement', 'write', 'report'])
      expect(err).toContain(stage)
    for (const name of ['a.artifact.safetensors', 'a.placement.safetensors', 'a.html']) expect(existsSync(file(name))).toBe(true)
    const page = readFileSync(file('a.html'), 'utf8')
    expect(page.match(/<svg/g)!.length).toBeGreaterThanOrEqual(5)
    expect(page).not.toMatch(/(?:src|href)="http/)
  })

  it('prints the same result as JSON, and nothing but JSON', async () => {
    const { out, err } = await eldr(...fitArgs('b.safetensors', '--json', '--quiet'))
    expect(err).toBe('')
    const result = JSON.parse(out) as {
      workers: number
      clusters: unknown[]
      transforms: { name: string; rho: number }[]
      stages: unknown[]
      files: { artifact: string }
    }
    expect(result.workers).toBe(8)
    expect(result.clusters).toHaveLength(8)
    expect(result.transforms.map(({ name }) => name)).toContain('gate-logit')
    expect(result.files.artifact).toBe(file('b.safetensors'))
  })

  it('leaves no temporary file behind, also when it is killed before it is done', async () => {
    mkdirSync(file('killed'))
    const child = spawn(process.execPath, [cli, 'fit', TASK, '-k', '8', '-o', join(file('killed'), 'x.safetensors'), '--pairs', '120000'])
    await new Promise<void>(resolve => child.stderr.once('data', () => resolve())) // the first stage has ended
    child.kill('SIGINT')
    expect(await new Promise(resolve => child.once('exit', (code, signal) => resolve(signal ?? code)))).toBe('SIGINT')
    expect(readdirSync(file('killed'))).toEqual([])
  })

  it('ends quietly when the reader of its output has seen enough', async () => {
    const child = spawn(process.execPath, [cli, 'inspect', TASK])
    child.stdout.once('data', () => child.stdout.destroy())
    let err = ''
    child.stderr.on('data', chunk => (err += String(chunk)))
    expect(await new Promise(resolve => child.once('exit', resolve))).toBe(0)
    expect(err).toBe('')
  })
})

describe('output that cannot be written', () => {
  it('on stderr is lost, and the work goes on', async () => {
    const child = spawn(process.execPath, [cli, ...fitArgs('quiet.safetensors')])
    child.stdout.resume()
    child.stderr.once('data', () => child.stderr.destroy())
    expect(await new Promise(resolve => child.once('exit', resolve))).toBe(0)
    expect(existsSync(file('quiet.safetensors'))).toBe(true)
  })

  it.runIf(existsSync('/dev/full'))('on stdout is a failure with a code', async () => {
    const full = openSync('/dev/full', 'w')
    const child = spawn(process.execPath, [cli, 'inspect', TASK], { stdio: ['ignore', full, 'pipe'] })
    let err = ''
    child.stderr!.on('data', chunk => (err += String(chunk)))
    expect(await new Promise(resolve => child.once('close', resolve))).toBe(1)
    closeSync(full)
    expect(err).toContain('[ELDR_FILE_UNWRITABLE]')
  })
})

describe('eldr refit', () => {
  it('never writes a placement over the artifact that it reads', async () => {
    await eldr(...fitArgs('d.placement.safetensors'))
    for (const args of [
      ['-o', file('e.safetensors'), '--placement-out', file('d.placement.safetensors')],
      ['-o', file('d.artifact.safetensors')],
    ]) {
      const { code, err } = await eldr('refit', file('d.placement.safetensors'), '-k', '3', '--ranks', '2', ...args)
      expect(code).toBe(2)
      expect(err).toContain('file of its own for each output')
    }
    expect((await eldr('inspect', file('d.placement.safetensors'))).out).toContain('Artifact')
  })

  it('makes another K of an artifact, and writes over it if asked to', async () => {
    await eldr(...fitArgs('c.safetensors'))
    const { code, out } = await eldr('refit', file('c.safetensors'), '-k', '5', '-o', file('c.safetensors'), '--ranks', '2')
    expect(code).toBe(0)
    expect(out).toContain('8 → 5 workers')
    expect(existsSync(file('c.placement.safetensors'))).toBe(true)
    const { workers } = JSON.parse((await eldr('inspect', file('c.safetensors'), '--json')).out) as { workers: number }
    expect(workers).toBe(5)
  })
})

describe('eldr simulate', () => {
  const EVALUATION = shipped('lab16-task.evaluation')

  it('compares policies on all cores, as a table and as JSON', async () => {
    await eldr('fit', TASK, '-k', '8', '-o', file('s.safetensors'), '-q')
    const args = [
      'simulate',
      '--trace',
      EVALUATION,
      '--artifact',
      file('s.safetensors'),
      '--topology',
      '4P8D',
      '--rates',
      '200',
      '--seeds',
      '2',
      '--requests',
      '600',
    ]
    const { code, out, err } = await eldr(...args)
    expect(err).toBe('')
    expect(code).toBe(0)
    for (const text of ['200 requests a second', 'jsq', 'eldr', 'union', 'TTFT p50', 'profile h200-first']) expect(out).toContain(text)
    const { points } = JSON.parse((await eldr(...args, '--json')).out) as {
      points: { variant: string; runs: { allRequests: number; tpotMs: { p50: number } }[] }[]
    }
    expect(points.map(({ variant }) => variant)).toEqual(['jsq', 'eldr', 'union'])
    for (const { runs } of points) expect(runs.map(({ allRequests }) => allRequests)).toEqual([600, 600])
  })

  it.each([
    [['--policies', 'jsq,lru'], 2, /one of random, round_robin/],
    [['--topology', '8Q'], 2, /such as 8P16D/],
    [['--rates', '0'], 2, /rates above 0/],
    [['--policies', 'eldr'], 2, /an artifact with centroids/],
    [['--profile', 'abacus'], 1, /abacus/],
    [['--trace', TASK], 1, /decode_expert_ids/],
  ])('answers %j with exit code %i and what is right', async (args, expected, message) => {
    const { code, err } = await eldr(
      'simulate',
      '--trace',
      EVALUATION,
      '--requests',
      '100',
      '--seeds',
      '1',
      '--rates',
      '50',
      '--policies',
      'jsq',
      ...args,
    )
    expect(err).toMatch(message)
    expect(code).toBe(expected)
  })
})

describe('eldr inspect', () => {
  it.each(['lab16-task.calibration', 'lab16-lang.evaluation', 'tiny6-long-lang.calibration'])(
    'shows what the shipped %s is and what it is good for',
    async name => {
      const { code, out } = await eldr('inspect', shipped(name))
      expect(code).toBe(0)
      expect(out).toContain('✓ make signatures')
      expect(out).toContain(name.includes('evaluation') ? '✓ replay decode steps' : '– replay decode steps')
      const json = JSON.parse((await eldr('inspect', shipped(name), '--json')).out) as {
        kind: string
        requests: number
        tensors: unknown[]
      }
      expect(json.kind).toBe('trace')
      expect(json.tensors.length).toBeGreaterThanOrEqual(5)
    },
  )

  it('shows no control character that a file may hold', async () => {
    const header = JSON.stringify({
      __metadata__: { format: 'eldr.trace.v1', model: 'a\u001b[31mb\u0007', layers: '1', experts: '2', top_k: '1' },
      prefill_counts: { dtype: 'U8', shape: [1, 1, 2], data_offsets: [0, 2] },
    })
    const prefix = Buffer.alloc(8)
    prefix.writeBigUInt64LE(BigInt(Buffer.byteLength(header)))
    writeFileSync(file('evil'), Buffer.concat([prefix, Buffer.from(header), Buffer.from([1, 0])]))
    const { code, out } = await eldr('inspect', file('evil'))
    expect(code).toBe(0)
    expect(out).toContain('a�[31mb�')
  })
})
