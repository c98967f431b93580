/**
 * Cost profiles as files: JSON `eldr.profile.v1`. Shipped profiles are in `profiles/` at the root of the
 * package and are used by name.
 */
import { readFile, readdir } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { EldrError } from '../errors.ts'
import { badMetadata } from '../trace/file-checks.ts'
import { quoted } from '../trace/quoted.ts'
import type {
  AttentionWindow,
  CostProfile,
  DecodeCost,
  DeviceSharing,
  HostCost,
  Provenance,
  StepNoise,
} from './profile.ts'

export const PROFILE_FORMAT = 'eldr.profile.v1'

/** Models have one or two window sizes; each adds a sum to the simulator. */
const MAX_WINDOWS = 8
/** Every percentile. */
const MAX_FACTORS = 101

/** The same folder from src/cost and from dist/cost. */
const SHIPPED = fileURLToPath(new URL('../../profiles/', import.meta.url))

/** A name from `profiles/`, or a path: anything with a slash or ending in .json. */
export async function loadProfile(nameOrPath: string): Promise<CostProfile> {
  const isPath = /[/\\]|\.json$/.test(nameOrPath)
  const path = isPath ? nameOrPath : `${SHIPPED}${nameOrPath}.json`
  let text: string
  try {
    text = await readFile(path, 'utf8')
  } catch (cause) {
    if (isPath) throw new EldrError('ELDR_FILE_UNREADABLE', { file: path, cause })
    const expected = `one of ${(await profileNames()).join(', ')}, or the path of a .json file`
    throw new EldrError('ELDR_FILE_UNREADABLE', {
      found: `no profile ${quoted(nameOrPath)}`,
      expected,
      cause,
    })
  }
  return parseProfile(path, text)
}

/** Names of the shipped profiles, in alphabetical order. */
export async function profileNames(): Promise<string[]> {
  return (await readdir(SHIPPED))
    .filter(file => file.endsWith('.json'))
    .map(file => file.slice(0, -'.json'.length))
    .toSorted()
}

/** Unknown keys are ignored, so that a later release may add some. */
export function parseProfile(file: string, text: string): CostProfile {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (cause) {
    throw new EldrError('ELDR_FILE_WRONG_KIND', { file, found: 'no JSON', expected: PROFILE_FORMAT, cause })
  }
  const root = new Fields(file, '', value)
  checkFormat(file, root.value('format'))
  const [shape, prefill, kv] = [root.fields('shape'), root.fields('prefill'), root.fields('kv')]
  const experts = shape.whole('experts', 65_536)
  return {
    name: root.text('name'),
    provenance: provenanceIn(root.fields('provenance')),
    shape: { layers: shape.whole('layers', 4_096), experts, topK: shape.whole('topK', experts) },
    decode: decodeIn(root.fields('decode')),
    prefill: { baseUs: prefill.cost('baseUs'), perTokenUs: prefill.cost('perTokenUs') },
    kv: {
      bytesPerToken: kv.whole('bytesPerToken', 1e9),
      capacityTokens: kv.whole('capacityTokens', 1e12),
      latencyUs: kv.cost('latencyUs'),
      gigabytesPerSecond: kv.positive('gigabytesPerSecond'),
    },
  }
}

function checkFormat(file: string, format: unknown): void {
  if (format === PROFILE_FORMAT) return
  const another = typeof format === 'string' && format.startsWith('eldr.profile.')
  const found = format === undefined ? 'JSON without a format' : `format ${quoted(format)}`
  throw new EldrError(another ? 'ELDR_FILE_UNKNOWN_VERSION' : 'ELDR_FILE_WRONG_KIND', {
    file,
    found,
    expected: PROFILE_FORMAT,
  })
}

function provenanceIn(fields: Fields): Provenance {
  const notes = fields.value('notes') ?? []
  const isNotes = (value: unknown): value is string[] =>
    Array.isArray(value) && value.every(note => typeof note === 'string')
  if (!isNotes(notes)) throw fields.wrong('notes', 'a list of texts')
  const optional = (key: 'measuredOn' | 'date' | 'source') =>
    fields.value(key) === undefined ? {} : { [key]: fields.text(key) }
  return {
    what: fields.text('what'),
    ...optional('measuredOn'),
    ...optional('date'),
    ...optional('source'),
    notes,
  }
}

function decodeIn(fields: Fields): DecodeCost {
  if (fields.value('kind') !== 'linear') throw fields.wrong('kind', '"linear"')
  const linear: DecodeCost = {
    kind: 'linear',
    baseUs: fields.cost('baseUs'),
    perRequestUs: fields.cost('perRequestUs'),
    perLayerUs: fields.cost('perLayerUs'),
    perActiveExpertUs: fields.cost('perActiveExpertUs'),
    perContextKTokenUs: fields.cost('perContextKTokenUs'),
  }
  const has = (key: string) => fields.value(key) !== undefined
  return {
    ...linear,
    ...(has('windows') && { windows: fields.list('windows', MAX_WINDOWS).map(windowIn) }),
    ...(has('host') && { host: hostIn(fields.fields('host')) }),
    ...(has('sharing') && { sharing: sharingIn(fields.fields('sharing')) }),
    ...(has('noise') && { noise: noiseIn(fields.fields('noise')) }),
  }
}

function hostIn(fields: Fields): HostCost {
  const overlaps = fields.value('overlaps')
  if (typeof overlaps !== 'boolean') throw fields.wrong('overlaps', 'true or false')
  return { baseUs: fields.cost('baseUs'), perRequestUs: fields.cost('perRequestUs'), overlaps }
}

function sharingIn(fields: Fields): DeviceSharing {
  const by = fields.value('by')
  if (by !== 'layer' && by !== 'bandwidth') throw fields.wrong('by', '"layer" or "bandwidth"')
  const capacity = fields.positive('capacity')
  if (capacity < 1) throw fields.wrong('capacity', 'a number of at least 1')
  return { by, capacity }
}

function noiseIn(fields: Fields): StepNoise {
  const factors = fields.value('factors')
  const expected = `2 to ${MAX_FACTORS} ascending numbers above 0, at most 1000`
  const isFactors = (value: unknown): value is number[] =>
    Array.isArray(value) &&
    value.length >= 2 &&
    value.length <= MAX_FACTORS &&
    value.every(factor => typeof factor === 'number' && factor > 0 && factor <= 1000) &&
    value.every((factor, at) => at === 0 || factor >= value[at - 1])
  if (!isFactors(factors)) throw fields.wrong('factors', expected)
  return { factors }
}

function windowIn(fields: Fields): AttentionWindow {
  return { tokens: fields.whole('tokens', 1e9), perContextKTokenUs: fields.cost('perContextKTokenUs') }
}

/** An object of the file, read field by field; errors name the full path of the field. */
class Fields {
  readonly #file: string
  readonly #path: string
  readonly #object: Readonly<Record<string, unknown>>

  constructor(file: string, path: string, value: unknown) {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      throw badMetadata(file, `${path === '' ? 'JSON' : path} ${quoted(value)}`, 'an object')
    }
    this.#file = file
    this.#path = path
    this.#object = value as Record<string, unknown>
  }

  value(key: string): unknown {
    return Object.hasOwn(this.#object, key) ? this.#object[key] : undefined
  }

  wrong(key: string, expected: string): EldrError {
    const value = this.value(key)
    const name = this.#name(key)
    return badMetadata(this.#file, value === undefined ? `no ${name}` : `${name} ${quoted(value)}`, expected)
  }

  fields(key: string): Fields {
    return new Fields(this.#file, this.#name(key), this.value(key))
  }

  list(key: string, max: number): Fields[] {
    const values = this.value(key)
    if (!Array.isArray(values) || values.length > max)
      throw this.wrong(key, `a list of at most ${max} objects`)
    return values.map((value, at) => new Fields(this.#file, `${this.#name(key)}[${at}]`, value))
  }

  text(key: string): string {
    const value = this.value(key)
    if (typeof value !== 'string' || value === '') throw this.wrong(key, 'some text')
    return value
  }

  whole(key: string, max: number): number {
    const value = this.#number(key)
    if (!Number.isInteger(value) || value < 1 || value > max)
      throw this.wrong(key, `an integer from 1 to ${max}`)
    return value
  }

  /** A time in microseconds, at most a minute. */
  cost(key: string): number {
    const value = this.#number(key)
    if (!(value >= 0 && value <= 60e6)) throw this.wrong(key, 'a number from 0 to 60000000')
    return value
  }

  positive(key: string): number {
    const value = this.#number(key)
    if (!(value > 0 && value <= 1e9)) throw this.wrong(key, 'a number above 0, at most 1000000000')
    return value
  }

  #number(key: string): number {
    const value = this.value(key)
    return typeof value === 'number' ? value : NaN
  }

  #name(key: string): string {
    return this.#path === '' ? key : `${this.#path}.${key}`
  }
}
