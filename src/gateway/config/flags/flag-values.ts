/** What flags and environment say, read by the table of sources. */
import type { SettingName } from '../paths.ts'
import { nearest } from './nearest.ts'
import type { Read } from './readers.ts'
import { CONFIG, longNameOf, type Source, SOURCES } from './sources.ts'

/** By long name: `--port` → '8000', a list for one that may be said again, true for a switch. */
export type FlagValues = ReadonlyMap<string, string | readonly string[] | true>
export type Environment = Readonly<Record<string, string | undefined>>

/** One value as one flag or variable says it. */
export interface Given {
  readonly name: SettingName
  readonly value: unknown
  /** The flag or the variable. */
  readonly by: string
  readonly kind: 'flag' | 'environment'
  /** As it was typed, where that is one text. */
  readonly typed?: string
  readonly unit?: 'seconds'
}

export interface AllGiven {
  /** The environment first, so that flags, coming later, win. */
  readonly given: readonly Given[]
  readonly problems: readonly string[]
  readonly warnings: readonly string[]
}

export async function readGiven(flags: FlagValues, env: Environment): Promise<AllGiven> {
  const fromEnvironment = await layer('environment', SOURCES, source =>
    isServiceLink(source.env, env) ? undefined : env[source.env],
  )
  const fromFlags = await layer('flag', SOURCES, source =>
    source.flag === undefined ? undefined : flags.get(longNameOf(source.flag)),
  )
  return {
    given: [...fromEnvironment.given, ...fromFlags.given],
    problems: [...fromFlags.problems, ...fromEnvironment.problems],
    warnings: environmentWarnings(env),
  }
}

async function layer(
  kind: Given['kind'],
  sources: readonly Source[],
  valueOf: (source: Source) => string | readonly string[] | true | undefined,
): Promise<{ given: Given[]; problems: string[] }> {
  const [given, problems]: [Given[], string[]] = [[], []]
  for (const source of sources) {
    const value = valueOf(source)
    // OpenTelemetry takes an empty variable for one that is not there.
    if (value === undefined || (source.yields && value === '')) continue
    const by = kind === 'flag' ? longNameOf(source.flag!) : source.env
    const read: Read =
      typeof value === 'object'
        ? { value: value.map(source.each ?? String) }
        : await source.read(value === true ? 'true' : value)
    if (read === 'nothing') continue
    if ('wrong' in read) {
      problems.push(`${by}: ${read.wrong}`)
      continue
    }
    const other = given.find(({ name }) => name === source.name)
    if (other !== undefined && source.yields) continue
    if (other !== undefined)
      problems.push(`${by}: sets ${source.name}, which ${other.by} sets too: give one of them`)
    else
      given.push({ name: source.name, by, kind, ...(typeof value === 'string' && { typed: value }), ...read })
  }
  return { given, problems }
}

/** Kubernetes puts the address of a service named eldr into the environment of every pod, as ELDR_PORT=tcp://10.0.0.1:8000. */
const isServiceLink = (name: string, env: Environment) =>
  name === 'ELDR_PORT' && /^(tcp|udp):\/\//.test(env[name] ?? '')

function environmentWarnings(env: Environment): string[] {
  const known = [CONFIG.env, ...SOURCES.map(source => source.env)].filter(name => name.startsWith('ELDR_'))
  const unknown = Object.keys(env).filter(name => name.startsWith('ELDR_') && !known.includes(name))
  const typing = unknown.flatMap(name => {
    const meant = nearest(
      name.slice('ELDR_'.length),
      known.map(each => each.slice('ELDR_'.length)),
    )
    return meant === undefined ? [] : [`${name} is not looked at: did you mean ELDR_${meant}?`]
  })
  return isServiceLink('ELDR_PORT', env)
    ? [
        'ELDR_PORT is not looked at: it is the address of a Kubernetes service named eldr, not a port (enableServiceLinks: false stops that)',
        ...typing,
      ]
    : typing
}
