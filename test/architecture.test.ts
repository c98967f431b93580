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

function filesUnder(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap(entry =>
    entry.isDirectory() ? filesUnder(join(folder, entry.name)) : [join(folder, entry.name)],
  )
}

interface Import {
  /** Folder below the base that imports, '' at its top. */
  readonly from: string
  /** Folder below the base that is imported, '' at its top; or the package; or '..' outside the base. */
  readonly to: string
  readonly where: string
}

/** Every import of the sources under a folder of the repository, without tests. */
function imports(base = 'src'): Import[] {
  const folder = join(root, base)
  return filesUnder(folder)
    .filter(file => file.endsWith('.ts') && !file.endsWith('.test.ts'))
    .flatMap(file => {
      const from = relative(folder, file).split('/')
      const text = readFileSync(file, 'utf8')
      return [
        ...text.matchAll(/(?:\bfrom |\bimport |\bimport\(\s*)'([^'\n]+)'|\bimport\(\s*`([^`\n]+)`/g),
      ].map(([, plain, template]) => {
        const target = plain ?? template
        const isLocal = target!.startsWith('.')
        const to = isLocal ? relative(folder, join(file, '..', target!)).split('/') : [target!]
        return {
          from: from.length > 1 ? from[0]! : '',
          to: isLocal && to.length === 1 ? '' : to[0]!,
          where: `${from.join('/')} → ${to.join('/')}`,
        }
      })
    })
}

function forbidden(
  found: readonly Import[],
  mayImport: Readonly<Record<string, readonly string[]>>,
): string[] {
  const folders = new Set(Object.keys(mayImport))
  return found
    .filter(({ from, to }) => folders.has(from) && folders.has(to) && from !== to)
    .filter(({ from, to }) => !mayImport[from]!.includes(to))
    .map(({ where }) => where)
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
  scale: ['control', 'flow', 'routing', 'discovery', 'engines', 'observe', 'http', 'upstream', 'config'],
  control: ['routing', 'discovery', 'observe', 'http', 'upstream', 'config', 'json'],
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
 * The names of engines: this file loads adapters on demand and imports nothing else, so that the
 * configuration may read it.
 */
const ENGINE_TABLE = 'engines/registry.ts'

/** No folder of the gateway has more files than this, tests aside. */
const MAX_FILES = 20
const MAX_FLOW_LINES = 170

describe('the rooms of the gateway', () => {
  const gateway = join(root, 'src/gateway')

  it('have no file beside them', () => {
    expect(readdirSync(gateway).toSorted()).toEqual(Object.keys(GATEWAY_MAY_IMPORT).toSorted())
  })

  it('import only what stands below them', () => {
    const found = imports('src/gateway').filter(
      ({ from, where }) => !(from === 'config' && where.endsWith(ENGINE_TABLE)),
    )
    expect(found.length).toBeGreaterThan(500)
    expect(forbidden(found, GATEWAY_MAY_IMPORT)).toEqual([])
    const rooms = Object.keys(GATEWAY_MAY_IMPORT)
    for (const [room, below] of Object.entries(GATEWAY_MAY_IMPORT))
      for (const other of below) expect(rooms.indexOf(other)).toBeGreaterThan(rooms.indexOf(room))
  })

  it('keep the table of engines free of imports, so that the configuration may read the names', () => {
    const text = readFileSync(join(gateway, ENGINE_TABLE), 'utf8')
    expect(text.match(/^import (?!type )/gm)).toBeNull()
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
    const seen = new Set<string>()
    const follow = (file: string) => {
      if (seen.has(file)) return
      seen.add(file)
      for (const [, target] of readFileSync(file, 'utf8').matchAll(/(?:\bfrom |\bimport\()'(\.[^'\n]+)'/g))
        follow(join(file, '..', target!))
    }
    follow(flow)
    const reached = new Set([...seen].map(file => relative(gateway, file).split('/')[0]))
    expect([...reached].filter(room => ['app', 'scale', 'control'].includes(room!))).toEqual([])
    expect(reached).toContain('engines')
  })
})

describe('the map of the code', () => {
  it('is kept: imports point down it and nowhere else', () => {
    const found = imports()
    expect(found.length).toBeGreaterThan(50)
    expect(forbidden(found, MAY_IMPORT)).toEqual([])
  })

  it('names every folder of src/, and none of them is empty', () => {
    const folders = readdirSync(join(root, 'src')).filter(name =>
      statSync(join(root, 'src', name)).isDirectory(),
    )
    expect(folders.toSorted()).toEqual(Object.keys(MAY_IMPORT).toSorted())
    for (const folder of folders) expect(readdirSync(join(root, 'src', folder)).length).toBeGreaterThan(0)
  })

  it('has mathematics at its bottom, which imports nothing at all', () => {
    expect(
      imports()
        .filter(({ from, to }) => from === 'math' && to !== 'math')
        .map(({ where }) => where),
    ).toEqual([])
  })

  it('loads no package before a command needs it: commander alone at the start', () => {
    const seen = new Set<string>()
    const packages = new Set<string>()
    const follow = (file: string) => {
      if (seen.has(file)) return
      seen.add(file)
      for (const [, target] of readFileSync(file, 'utf8').matchAll(
        /^(?:import|\} from|(?:import|export) (?!type )[^'\n]* from) '([^'\n]+)'/gm,
      )) {
        if (target!.startsWith('.')) follow(join(file, '..', target!))
        else if (!target!.startsWith('node:')) packages.add(target!)
      }
    }
    follow(join(root, 'src/cli/main.ts'))
    expect(seen.size).toBeGreaterThan(5)
    expect([...packages]).toEqual(['commander'])
  })

  it('uses the packages that it names, and no others', () => {
    const { dependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
      dependencies: Record<string, string>
    }
    const used = new Set(
      imports()
        .map(({ to }) => to)
        .filter(to => to !== '' && !to.startsWith('node:') && !(to in MAY_IMPORT)),
    )
    expect([...used].toSorted()).toEqual(Object.keys(dependencies).toSorted())
  })
})

/** Comparisons with a word that is also the name of a policy. */
const NOT_POLICIES: readonly string[] = [
  "src/sim/replicas.ts: entrance === 'random'", // how requests arrive at gateways
  "src/sim/cell-study.ts: by === 'random'", // how a cell is chosen
]

describe('policy names', () => {
  it('are compared in src/policy only: other code asks the descriptor', () => {
    const names = [...new Set([...POLICIES, ...PREFILL_POLICIES])].join('|')
    const compared = new RegExp(
      `[\\w.?]+ [!=]==? '(?:${names})'|'(?:${names})' [!=]==? [\\w.?]+|case '(?:${names})'|'(?:${names})'\\]\\.includes`,
      'g',
    )
    expect("policy !== 'jsq'".match(compared)).toHaveLength(1)
    const sources = ['src', 'dashboard']
      .flatMap(folder => filesUnder(join(root, folder)))
      .filter(file => /\.tsx?$/.test(file) && !file.endsWith('.test.ts'))
      .filter(file => !file.startsWith(join(root, 'src', 'policy')))
    expect(sources.length).toBeGreaterThan(200)
    const found = sources.flatMap(file =>
      [...readFileSync(file, 'utf8').matchAll(compared)].map(([text]) => `${relative(root, file)}: ${text}`),
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
