/** Settings from flags, environment, file and defaults, in this order of precedence, with where each value came from. */
import { EldrError } from '../../errors.ts'
import { checkTogether, type Finding } from './checks/checks.ts'
import { type ConfigFile, readConfigFile } from './config-file.ts'
import { type Environment, type FlagValues, type Given, readGiven } from './flags/flag-values.ts'
import { isObject, leavesOf, partsOf, type Path, putAt, removeAt, valueAt } from './paths.ts'
import { type Looked, problemsOf, sourceOf, whereIs } from './problems.ts'
import { fileSchema } from './schema/schema.ts'
import type { Settings } from './settings.ts'
import { settle } from './settle.ts'
import { CONFIG, longNameOf } from './flags/sources.ts'
import { checkWorkers } from './checks/worker-checks.ts'

export interface Origin {
  readonly kind: 'flag' | 'environment' | 'file' | 'default'
  /** The flag, the variable, or FILE:LINE:COLUMN. */
  readonly name: string
}

export interface Loaded {
  readonly settings: Settings
  /** Of each value by its name, such as server.port. */
  readonly origins: ReadonlyMap<string, Origin>
  readonly warnings: readonly string[]
}

export interface Asked {
  readonly flags?: FlagValues
  readonly env?: Environment
  /** In place of --config and ELDR_CONFIG. */
  readonly file?: string
}

/** Throws ELDR_CONFIG_INVALID with all that is wrong. */
export async function loadSettings({
  flags = new Map(),
  env = {},
  file = configPath(flags, env),
}: Asked): Promise<Loaded> {
  const { given, problems: wrongTexts, warnings } = await readGiven(flags, env)
  const read = file === undefined ? undefined : await readConfigFile(file)
  if (read !== undefined && read.problems.length > 0) throw invalid([...read.problems, ...wrongTexts], read)
  const looked: Looked = { value: merged(read?.value ?? {}, given), given, ...(read && { file: read }) }
  const parsed = fileSchema.safeParse(looked.value)
  const wrong = problemsOf(parsed.error?.issues ?? [], looked)
  const findings = [
    ...checkWorkers(looked.value),
    ...together(
      looked.value,
      wrong.map(({ path }) => path),
    ),
  ]
  const line = ({ path, text }: Finding) => `${path === undefined ? '' : whereIs(path, looked)}${text}`
  const inValues = [...wrong.map(each => each.line), ...findings.filter(({ warning }) => !warning).map(line)]
  const problems = [...wrongTexts, ...inValues.toSorted(byPlace)]
  if (problems.length > 0 || !parsed.success) throw invalid(problems, read)
  const settings = settle(parsed.data)
  return {
    settings,
    origins: new Map(leavesOf(settings).map(({ path }) => [path.join('.'), originOf(path, looked)])),
    warnings: [...warnings, ...findings.filter(({ warning }) => warning).map(line)],
  }
}

/** Lines begin with the file, the line and the column. */
const byPlace = new Intl.Collator('en', { numeric: true }).compare

function configPath(flags: FlagValues, env: Environment): string | undefined {
  const said = flags.get(longNameOf(CONFIG.flag)) ?? env[CONFIG.env]
  if (said === '')
    throw new EldrError('ELDR_USAGE', {
      found: 'an empty name for the configuration file',
      expected: 'a path',
    })
  return typeof said === 'string' ? said : undefined
}

/** The file with what was given put over it. A list is replaced, not added to. */
function merged(file: unknown, given: readonly Given[]): unknown {
  if (!isObject(file)) return file
  const value = structuredClone(file)
  for (const { name, value: said } of given) putAt(value, partsOf(name), said)
  return value
}

/** What is wrong together, seen past what is wrong by itself: that is left out, and nothing is concluded from its absence. */
function together(value: unknown, wrong: readonly Path[]): Finding[] {
  const rest: unknown = structuredClone(value)
  if (!isObject(rest)) return []
  const cuts = wrong.map(path => keysOf(valueAt(value, path) === undefined ? path.slice(0, -1) : path))
  for (const cut of cuts) removeAt(rest, cut)
  const parsed = fileSchema.safeParse(rest)
  if (!parsed.success) return []
  return [...checkTogether(parsed.data)].filter(({ path = [], about = [] }) =>
    [path, ...about].every(each => !cuts.some(cut => cut.every((part, at) => part === each[at]))),
  )
}

/** Down to a list, which goes as a whole. */
function keysOf(path: Path): string[] {
  const index = path.findIndex(part => typeof part === 'number')
  return path.slice(0, index < 0 ? path.length : index).map(String)
}

function originOf(path: Path, { value, given, file }: Looked): Origin {
  const source = sourceOf(path, given)
  if (source !== undefined) return { kind: source.kind, name: source.by }
  return file !== undefined && valueAt(value, path) !== undefined
    ? { kind: 'file', name: file.placeOf(path) }
    : { kind: 'default', name: 'default' }
}

function invalid(problems: readonly string[], file: ConfigFile | undefined): EldrError {
  const found = problems.length === 1 ? '1 problem' : `${problems.length} problems`
  return new EldrError('ELDR_CONFIG_INVALID', { ...(file && { file: file.path }), found, problems })
}
