/**
 * Loads settings from flags, environment, file and defaults, in this order of precedence, and records the
 * origin of each value.
 */
import { EldrError } from '../../errors.ts'
import { checkTogether, type Finding } from './checks/checks.ts'
import { type ConfigFile, readConfigFile } from './config-file.ts'
import { type Environment, type FlagValues, type Override, readOverrides } from './flags/flag-values.ts'
import { isObject, leavesOf, partsOf, type Path, putAt, removeAt, valueAt } from './paths.ts'
import { type Input, overrideOf, problemsOf, locationOf } from './problems.ts'
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
  /** Origin of each value, by its name, such as server.port. */
  readonly origins: ReadonlyMap<string, Origin>
  readonly warnings: readonly string[]
}

export interface LoadOptions {
  readonly flags?: FlagValues
  readonly env?: Environment
  /** Overrides --config and ELDR_CONFIG. */
  readonly file?: string
}

/** Throws ELDR_CONFIG_INVALID with all problems. */
export async function loadSettings({
  flags = new Map(),
  env = {},
  file = configPath(flags, env),
}: LoadOptions): Promise<Loaded> {
  const { overrides, problems: flagProblems, warnings } = await readOverrides(flags, env)
  const read = file === undefined ? undefined : await readConfigFile(file)
  if (read !== undefined && read.problems.length > 0) throw invalid([...read.problems, ...flagProblems], read)
  const input: Input = { value: merged(read?.value ?? {}, overrides), overrides, file: read }
  const parsed = fileSchema.safeParse(input.value)
  const schemaProblems = problemsOf(parsed.error?.issues ?? [], input)
  const findings = [
    ...checkWorkers(input.value),
    ...crossChecks(
      input.value,
      schemaProblems.map(({ path }) => path),
    ),
  ]
  const line = ({ path, text }: Finding) => `${path === undefined ? '' : locationOf(path, input)}${text}`
  const inValues = [
    ...schemaProblems.map(each => each.line),
    ...findings.filter(({ warning }) => !warning).map(line),
  ]
  const problems = [...flagProblems, ...inValues.toSorted(byLocation)]
  if (problems.length > 0 || !parsed.success) throw invalid(problems, read)
  const settings = settle(parsed.data)
  return {
    settings,
    origins: new Map(leavesOf(settings).map(({ path }) => [path.join('.'), originOf(path, input)])),
    warnings: [...warnings, ...findings.filter(({ warning }) => warning).map(line)],
  }
}

/** Lines begin with FILE:LINE:COLUMN. */
const byLocation = new Intl.Collator('en', { numeric: true }).compare

function configPath(flags: FlagValues, env: Environment): string | undefined {
  const path = flags.get(longNameOf(CONFIG.flag)) ?? env[CONFIG.env]
  if (path === '')
    throw new EldrError('ELDR_USAGE', {
      found: 'an empty name for the configuration file',
      expected: 'a path',
    })
  return typeof path === 'string' ? path : undefined
}

/** Applies the overrides to the file. A list replaces the file's list. */
function merged(file: unknown, overrides: readonly Override[]): unknown {
  if (!isObject(file)) return file
  const value = structuredClone(file)
  for (const override of overrides) putAt(value, partsOf(override.name), override.value)
  return value
}

/**
 * Checks combinations of values. Values that are invalid by themselves are left out, and findings that
 * involve them are dropped.
 */
function crossChecks(value: unknown, invalidPaths: readonly Path[]): Finding[] {
  const rest: unknown = structuredClone(value)
  if (!isObject(rest)) return []
  const cuts = invalidPaths.map(path => keysOf(valueAt(value, path) === undefined ? path.slice(0, -1) : path))
  for (const cut of cuts) removeAt(rest, cut)
  const parsed = fileSchema.safeParse(rest)
  if (!parsed.success) return []
  return [...checkTogether(parsed.data)].filter(({ path = [], about = [] }) =>
    [path, ...about].every(each => !cuts.some(cut => cut.every((part, at) => part === each[at]))),
  )
}

/** The path up to the first list, which is removed as a whole. */
function keysOf(path: Path): string[] {
  const index = path.findIndex(part => typeof part === 'number')
  return path.slice(0, index < 0 ? path.length : index).map(String)
}

function originOf(path: Path, { value, overrides, file }: Input): Origin {
  const override = overrideOf(path, overrides)
  if (override !== undefined) return { kind: override.kind, name: override.source }
  return file !== undefined && valueAt(value, path) !== undefined
    ? { kind: 'file', name: file.placeOf(path) }
    : { kind: 'default', name: 'default' }
}

function invalid(problems: readonly string[], file: ConfigFile | undefined): EldrError {
  const found = problems.length === 1 ? '1 problem' : `${problems.length} problems`
  return new EldrError('ELDR_CONFIG_INVALID', { file: file?.path, found, problems })
}
