import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { ERRORS } from '../src/errors.ts'
import { REFUSALS } from '../src/gateway/http/refusal.ts'
import { POLICIES } from '../src/policy/decode-policy.ts'
import { PREFILL_POLICIES } from '../src/policy/prefill-policy.ts'
import { errorsPage } from '../src/report/errors-page.ts'
import { filesReached, filesUnder, type Import, importsOf, isLocal } from './architecture/imports.ts'
import { comparedNames } from './architecture/policy-names.ts'

const root = fileURLToPath(new URL('..', import.meta.url))

/**
 * Which folders of src/ a folder may import. Files at the top of src/ (errors, version) may be imported by
 * all but math.
 */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  math: [],
  signature: ['math'],
  trace: ['math'],
  fit: ['math', 'signature', 'trace'],
  policy: ['math', 'signature', 'fit'],
  cost: ['trace'],
  sim: ['math', 'signature', 'trace', 'fit', 'policy', 'cost'],
  adapt: ['math', 'signature', 'trace', 'fit', 'policy', 'sim'],
  wire: [],
  cluster: ['math'],
  gateway: ['math', 'signature', 'trace', 'fit', 'policy', 'cost', 'wire', 'cluster'],
  report: ['math', 'signature', 'trace', 'fit', 'sim'],
  paper: ['math', 'signature', 'trace', 'fit', 'policy', 'cost', 'sim', 'report'],
  served: ['math', 'cost', 'sim', 'report'],
  worker: ['math', 'signature', 'trace', 'fit', 'cost', 'wire'],
  load: ['math', 'trace', 'sim', 'report'],
  calibrate: ['math', 'trace', 'wire', 'load'],
  up: ['math', 'trace', 'fit', 'policy', 'cost', 'sim', 'report', 'worker', 'load'],
  cli: [
    'math',
    'signature',
    'trace',
    'fit',
    'policy',
    'cost',
    'sim',
    'adapt',
    'wire',
    'cluster',
    'gateway',
    'report',
    'paper',
    'served',
    'worker',
    'load',
    'calibrate',
    'up',
  ],
}

interface Edge {
  /** Folder below the base that imports, '' at its top. */
  readonly from: string
  /** Folder below the base that is imported, '' at its top, '..' outside the base. */
  readonly to: string
  readonly where: string
}

const isSource = (file: string) => /\.tsx?$/.test(file) && !/\.test\.tsx?$/.test(file)

const parsed = new Map<string, Import[]>()

/** The imports of a source file, which is parsed once for all tests. */
function importsIn(file: string): Import[] {
  if (!isSource(file)) return []
  const known = parsed.get(file) ?? importsOf(file, readFileSync(file, 'utf8'))
  parsed.set(file, known)
  return known
}

/** Every import of one file by another under a folder of the repository, without tests. */
function edges(base = 'src'): Edge[] {
  const folder = join(root, base)
  const roomOf = (path: string) => (path.includes('/') ? path.split('/')[0]! : '')
  return filesUnder(folder).flatMap(file => {
    const from = relative(folder, file)
    return importsIn(file)
      .filter(isLocal)
      .flatMap(found => filesReached(file, found))
      .map(reached => relative(folder, reached))
      .map(to => ({ from: roomOf(from), to: roomOf(to), where: `${from} → ${to}` }))
  })
}

/** All files that a file reaches through imports that `follows` accepts, itself included. */
function closure(start: string, follows: (found: Import) => boolean = () => true): string[] {
  const seen = new Set<string>()
  const follow = (file: string) => {
    if (seen.has(file)) return
    seen.add(file)
    for (const found of importsIn(file).filter(isLocal).filter(follows))
      for (const reached of filesReached(file, found)) follow(reached)
  }
  follow(start)
  return [...seen]
}

/** The package that an import names, if it names one. */
const packageOf = ({ target }: Import): string[] =>
  target === undefined || /^(\.|node:)/.test(target) ? [] : [target]

/** Files that load each other, each circle once. */
function circles(files: readonly string[]): string[] {
  const done = new Set<string>()
  const found: string[] = []
  const follow = (file: string, path: readonly string[]) => {
    if (path.includes(file)) {
      found.push([...path.slice(path.indexOf(file)), file].map(name => relative(root, name)).join(' → '))
    } else if (!done.has(file)) {
      for (const one of importsIn(file).filter(isLocal).filter(isStatic))
        for (const reached of filesReached(file, one)) follow(reached, [...path, file])
      done.add(file)
    }
  }
  for (const file of files) follow(file, [])
  return found
}

const isStatic = ({ kind }: Import) => kind === 'static'

function forbidden(found: readonly Edge[], mayImport: Readonly<Record<string, readonly string[]>>): string[] {
  const folders = new Set(Object.keys(mayImport))
  return found
    .filter(({ from, to }) => folders.has(from) && folders.has(to) && from !== to)
    .filter(({ from, to }) => !mayImport[from]!.includes(to))
    .map(({ where }) => where)
    .filter(where => !STARTS_PROGRAM.has(where))
}

/**
 * The rooms of the gateway, top to bottom: each may import those that it names, all of which stand below it.
 */
const GATEWAY_MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  app: [
    'scale',
    'control',
    'flow',
    'routing',
    'discovery',
    'engines',
    'observe',
    'http',
    'upstream',
    'config',
  ],
  scale: ['flow', 'routing', 'discovery', 'observe', 'http', 'upstream', 'config'],
  control: ['routing', 'discovery', 'observe', 'http', 'upstream', 'config'],
  flow: ['routing', 'engines', 'observe', 'http', 'upstream', 'config', 'json'],
  routing: ['engines', 'observe', 'http', 'upstream', 'config'],
  discovery: ['config'],
  engines: ['http', 'json'],
  observe: ['http', 'upstream', 'config'],
  http: ['upstream', 'config', 'json'],
  upstream: [],
  config: [],
  json: [],
}

/**
 * The names of engines: this file loads adapters on demand and imports nothing when it is loaded, so that the
 * configuration may read it.
 */
const ENGINE_TABLE = 'engines/engine-table.ts'

/** Files that start a program in a separate process, which needs nothing of the program in its own. */
const STARTS_PROGRAM = new Set([
  'scale/processes/member.ts → app/owner.ts',
  'scale/processes/member.ts → app/relay.ts',
  'up/child.ts → cli/main.ts',
])

/** Imports of a path that the source does not show: the caller's `new URL`, which is checked, names it. */
const COMPUTED: readonly string[] = [
  'gateway/app/owner.ts: import(module)',
  'sim/parallel.ts: import(module.href)',
  'sim/parallel-thread.ts: import(module)',
]

/** No folder of the gateway has more files than this, tests aside. */
const MAX_FILES = 20
const MAX_FLOW_LINES = 170

describe('the rooms of the gateway', () => {
  const gateway = join(root, 'src/gateway')

  it('have no file beside them', () => {
    expect(readdirSync(gateway).toSorted()).toEqual(Object.keys(GATEWAY_MAY_IMPORT).toSorted())
  })

  it('import only what stands below them', () => {
    const found = edges('src/gateway').filter(
      ({ from, where }) => !(from === 'config' && where.endsWith(ENGINE_TABLE)),
    )
    expect(found.length).toBeGreaterThan(500)
    expect(forbidden(found, GATEWAY_MAY_IMPORT)).toEqual([])
    const rooms = Object.keys(GATEWAY_MAY_IMPORT)
    for (const [room, below] of Object.entries(GATEWAY_MAY_IMPORT))
      for (const other of below) expect(rooms.indexOf(other)).toBeGreaterThan(rooms.indexOf(room))
  })

  it('are allowed nothing that they do not use', () => {
    const used = new Set(edges('src/gateway').map(({ from, to }) => `${from} → ${to}`))
    const allowed = Object.entries(GATEWAY_MAY_IMPORT).flatMap(([room, below]) =>
      below.map(other => `${room} → ${other}`),
    )
    expect(allowed.filter(pair => !used.has(pair))).toEqual([])
  })

  it('keep the table of engines free of imports, so that the configuration may read the names', () => {
    const kinds = importsIn(join(gateway, ENGINE_TABLE)).map(({ kind }) => kind)
    expect(kinds).toContain('dynamic')
    expect(kinds.filter(kind => kind !== 'dynamic' && kind !== 'type')).toEqual([])
  })

  it('have at most 20 files per folder', () => {
    const folders = new Set(filesUnder(gateway).map(file => join(file, '..')))
    const sizes = [...folders].map(folder => ({
      folder: relative(gateway, folder),
      files: readdirSync(folder).filter(name => name.endsWith('.ts') && !name.endsWith('.test.ts')).length,
    }))
    expect(sizes.filter(({ files }) => files > MAX_FILES)).toEqual([])
  })

  it('show a request from prefill to release in one file, which reaches neither control nor scale', () => {
    const flow = join(gateway, 'flow/generate.ts')
    expect(readFileSync(flow, 'utf8').split('\n').length - 1).toBeLessThanOrEqual(MAX_FLOW_LINES)
    const reached = new Set(closure(flow).map(file => relative(gateway, file).split('/')[0]))
    expect([...reached].filter(room => ['app', 'scale', 'control'].includes(room!))).toEqual([])
    expect(reached).toContain('engines')
  })
})

describe('the map of the code', () => {
  it('is kept: imports point down it and nowhere else', () => {
    const found = edges()
    expect(found.length).toBeGreaterThan(2000)
    expect(forbidden(found, MAY_IMPORT)).toEqual([])
  })

  it('can be read: every import shows its path', () => {
    const computed = filesUnder(join(root, 'src')).flatMap(file =>
      importsIn(file)
        .filter(({ target }) => target === undefined)
        .map(({ text }) => `${relative(join(root, 'src'), file)}: ${text}`),
    )
    expect(computed.toSorted()).toEqual(COMPUTED.toSorted())
  })

  it('has no circle of files that load each other', () => {
    expect(circles(filesUnder(join(root, 'src')))).toEqual([])
  })

  it('names every folder of src/, and none of them is empty', () => {
    const folders = readdirSync(join(root, 'src')).filter(name =>
      statSync(join(root, 'src', name)).isDirectory(),
    )
    expect(folders.toSorted()).toEqual(Object.keys(MAY_IMPORT).toSorted())
    for (const folder of folders) expect(readdirSync(join(root, 'src', folder)).length).toBeGreaterThan(0)
  })

  it('has mathematics at its bottom, which imports nothing at all', () => {
    const found = filesUnder(join(root, 'src', 'math')).flatMap(file =>
      importsIn(file)
        .filter(({ target }) => !/^\.\/[^/]+$/.test(target ?? ''))
        .map(({ text }) => `${relative(root, file)}: ${text}`),
    )
    expect(found).toEqual([])
  })

  it('loads no package before a command needs it: commander alone at the start', () => {
    const files = closure(join(root, 'src/cli/main.ts'), isStatic)
    expect(files.length).toBeGreaterThan(5)
    const packages = files.flatMap(file => importsIn(file).filter(isStatic).flatMap(packageOf))
    expect([...new Set(packages)]).toEqual(['commander'])
  })

  it('uses the packages that it names, and no others', () => {
    const { dependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
      dependencies: Record<string, string>
    }
    const used = new Set(filesUnder(join(root, 'src')).flatMap(file => importsIn(file).flatMap(packageOf)))
    expect([...used].toSorted()).toEqual(Object.keys(dependencies).toSorted())
  })
})

/** Comparisons with a word that is also the name of a policy. */
const NOT_POLICIES: readonly string[] = [
  "bench/lib/scoring-worker.mjs: way === 'eldr'", // the product, beside plain loops
  "src/sim/replicas.ts: entrance === 'random'", // how requests arrive at gateways
  "src/sim/cell-study.ts: by === 'random'", // how a cell is chosen
  'src/load/prompt-line.ts: KEYS.has(key)', // fields of a line, one of which is the domain
  "src/trace/trace-layout.ts: tensors.has('domain')", // a tensor of a trace
  // a path
  'src/gateway/control/dashboard/routes.ts: /^\\/eldr\\/(pulse|experts|plane|adapt|shadow|experiment|requests\\/[^/]+)$/',
  'src/paper/verdicts.ts: /^union p99$/', // the heading of a column
]

describe('policy names', () => {
  it('are compared in src/policy only: other code asks the descriptor', () => {
    const names = [...new Set([...POLICIES, ...PREFILL_POLICIES])]
    const sources = ['src', 'dashboard', 'bench']
      .flatMap(folder => filesUnder(join(root, folder)))
      .filter(file => (isSource(file) || file.endsWith('.mjs')) && !file.includes('/node_modules/'))
      .filter(file => !file.startsWith(join(root, 'src', 'policy')))
    expect(sources.length).toBeGreaterThan(600)
    const found = sources.flatMap(file =>
      comparedNames(file, readFileSync(file, 'utf8'), names).map(text => `${relative(root, file)}: ${text}`),
    )
    expect(found.toSorted()).toEqual(NOT_POLICIES.toSorted())
  })
})

describe('the package', () => {
  it('has no dependency with an install script, and no download address in its lock file', () => {
    const lock = readFileSync(join(root, 'package-lock.json'), 'utf8')
    expect(lock).not.toContain('hasInstallScript')
    expect(lock).not.toMatch(/"resolved": "http/)
  })

  it('has a lock file that names the native tools of every platform, so that `npm ci` takes it anywhere', () => {
    const { packages } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')) as {
      packages: Record<string, { optionalDependencies?: Record<string, string> }>
    }
    const wanted = Object.values(packages).flatMap(({ optionalDependencies }) =>
      Object.keys(optionalDependencies ?? {}),
    )
    expect(wanted.length).toBeGreaterThan(30)
    expect(wanted.filter(name => !(`node_modules/${name}` in packages))).toEqual([])
  })

  it('ships data of at most 30 MB', () => {
    const bytes = filesUnder(join(root, 'data')).reduce((sum, file) => sum + statSync(file).size, 0)
    expect(bytes).toBeGreaterThan(20e6)
    expect(bytes).toBeLessThan(30e6)
  })

  it('ships a model of at most 16 MB', () => {
    const bytes = filesUnder(join(root, 'models')).reduce((sum, file) => sum + statSync(file).size, 0)
    expect(bytes).toBeGreaterThan(10e6)
    expect(bytes).toBeLessThan(16e6)
  })

  it.runIf(existsSync(join(root, '.git')))('is a repository of less than 50 MB', () => {
    const files = execFileSync('git', ['ls-files', '-z'], {
      cwd: root,
      encoding: 'utf8',
      maxBuffer: 1 << 24,
    }).split('\0')
    const bytes = files
      .filter(file => file !== '' && existsSync(join(root, file)))
      .reduce((sum, file) => sum + statSync(join(root, file)).size, 0)
    expect(bytes).toBeLessThan(50e6)
  })

  it.runIf(existsSync(join(root, '.git')))(
    'holds no path of a machine and no TypeScript check that is switched off',
    () => {
      const files = execFileSync(
        'git',
        ['ls-files', '*.ts', '*.mjs', '*.md', '*.json', '*.py', '*.yml', '.ci/run'],
        { cwd: root, encoding: 'utf8' },
      )
        .split('\n')
        .filter(file => file !== '' && existsSync(join(root, file)))
      const wrong = files.filter(
        file =>
          /\/work\/(main|shared|steering)|\/root\/|@ts-(ignore|nocheck|expect-error)|\bas any\b/.test(
            readFileSync(join(root, file), 'utf8'),
          ) && file !== 'test/architecture.test.ts',
      )
      expect(wrong).toEqual([])
    },
  )
})

describe('the page of errors', () => {
  it('is made from the tables of errors as they are now: run `npm run build && npm run docs` if not', () => {
    expect(readFileSync(join(root, 'docs', 'reference', 'errors.md'), 'utf8')).toBe(errorsPage(REFUSALS))
  })

  it('has a text and an advice for every code, both as sentences', () => {
    for (const { text, todo } of Object.values(ERRORS)) {
      expect(text).toMatch(/^[A-Z].*[^.]$/)
      expect(todo).toMatch(/^[A-Z].*\.$/)
    }
  })

  it('has no code that nothing throws', () => {
    const sources = filesUnder(join(root, 'src')).filter(
      file => file.endsWith('.ts') && !file.endsWith('.test.ts') && !file.endsWith('errors.ts'),
    )
    const text = sources.map(file => readFileSync(file, 'utf8')).join('\n')
    expect(Object.keys(ERRORS).filter(code => !text.includes(`'${code}'`))).toEqual([])
  })
})
