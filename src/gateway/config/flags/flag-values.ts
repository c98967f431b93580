/** Parses flags and environment variables by the table in sources.ts. */
import type { SettingName } from '../paths.ts'
import { nearest } from './nearest.ts'
import { type Read, valueRead } from './readers.ts'
import { CONFIG, longNameOf, type Source, SOURCES } from './sources.ts'

/** By long name: `--port` → '8000', a list for a repeatable flag, true for a switch. */
export type FlagValues = ReadonlyMap<string, string | readonly string[] | true>
export type Environment = Readonly<Record<string, string | undefined>>

/** A setting from a flag or a variable, which overrides the file. */
export interface Override {
  readonly name: SettingName
  readonly value: unknown
  /** The flag or the variable. */
  readonly source: string
  readonly kind: 'flag' | 'environment'
  /** The original text, if it is a single one. */
  readonly text?: string
  readonly unit?: 'seconds'
}

export interface Overrides {
  /** Environment first, so that flags take precedence. */
  readonly overrides: readonly Override[]
  readonly problems: readonly string[]
  readonly warnings: readonly string[]
}

export async function readOverrides(flags: FlagValues, env: Environment): Promise<Overrides> {
  const fromEnvironment = await layer('environment', SOURCES, source =>
    isServiceLink(source.env, env) ? undefined : env[source.env],
  )
  const fromFlags = await layer('flag', SOURCES, source =>
    source.flag === undefined ? undefined : flags.get(longNameOf(source.flag)),
  )
  return {
    overrides: [...fromEnvironment.overrides, ...fromFlags.overrides],
    problems: [...fromFlags.problems, ...fromEnvironment.problems],
    warnings: environmentWarnings(env),
  }
}

async function layer(
  kind: Override['kind'],
  sources: readonly Source[],
  valueOf: (source: Source) => string | readonly string[] | true | undefined,
): Promise<{ overrides: Override[]; problems: string[] }> {
  const [overrides, problems]: [Override[], string[]] = [[], []]
  for (const source of sources) {
    const value = valueOf(source)
    // OpenTelemetry treats an empty variable as unset.
    if (value === undefined || (source.yields && value === '')) continue
    const name = kind === 'flag' ? longNameOf(source.flag!) : source.env
    const read: Read =
      typeof value === 'object'
        ? valueRead(value.map(source.each ?? String))
        : await source.read(value === true ? 'true' : value)
    if (read.kind === 'unset') continue
    if (read.kind === 'invalid') {
      problems.push(`${name}: ${read.why}`)
      continue
    }
    const other = overrides.find(each => each.name === source.name)
    if (other !== undefined && source.yields) continue
    if (other !== undefined)
      problems.push(`${name}: sets ${source.name}, which ${other.source} sets too: set only one of them`)
    else
      overrides.push({
        name: source.name,
        value: read.value,
        source: name,
        kind,
        text: typeof value === 'string' ? value : undefined,
        unit: read.unit,
      })
  }
  return { overrides, problems }
}

/** Kubernetes sets ELDR_PORT=tcp://10.0.0.1:8000 in every pod if there is a service named eldr. */
const isServiceLink = (name: string, env: Environment) =>
  name === 'ELDR_PORT' && /^(tcp|udp):\/\//.test(env[name] ?? '')

function environmentWarnings(env: Environment): string[] {
  const known = [CONFIG.env, ...SOURCES.map(source => source.env)].filter(name => name.startsWith('ELDR_'))
  const unknown = Object.keys(env).filter(name => name.startsWith('ELDR_') && !known.includes(name))
  const misspelt = unknown.flatMap(name => {
    const suggestion = nearest(
      name.slice('ELDR_'.length),
      known.map(each => each.slice('ELDR_'.length)),
    )
    return suggestion === undefined ? [] : [`${name} is ignored: did you mean ELDR_${suggestion}?`]
  })
  return isServiceLink('ELDR_PORT', env)
    ? [
        'ELDR_PORT is ignored: Kubernetes set it to the address of a service named eldr (enableServiceLinks: false prevents that)',
        ...misspelt,
      ]
    : misspelt
}
