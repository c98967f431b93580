/** Scenarios of a user's own: a JSON list of descriptions like those of `scenario.ts`. */
import { readFile } from 'node:fs/promises'
import { EldrError } from '../../errors.ts'
import { ARTIFACT_KINDS, type Scenario } from './scenario.ts'

/** Fields besides name, about and artifact, with the numbers that they may be. */
const NUMBERS = {
  clustersPerWorker: { min: 0.01, max: 16 },
  burstSeconds: { min: 1, max: 600 },
  daySeconds: { min: 1, max: 600 },
  slowness: { min: 0.1, max: 100 },
} as const satisfies Partial<Record<keyof Scenario, { readonly min: number; readonly max: number }>>

const FIELDS: readonly string[] = ['name', 'about', 'artifact', ...Object.keys(NUMBERS)]

export async function readScenarios(file: string): Promise<Scenario[]> {
  const text = await readFile(file, 'utf8').catch((cause: unknown) => {
    throw new EldrError('ELDR_FILE_UNREADABLE', { file, cause })
  })
  const list = parsed(file, text)
  if (!Array.isArray(list) || list.length === 0) throw wrong(file, 'no list of scenarios', 'a JSON list')
  return list.map((entry: unknown, at) => {
    const problem = problemOf(entry)
    if (problem !== undefined) throw wrong(file, `${problem.found} in scenario ${at + 1}`, problem.expected)
    const scenario = entry as Scenario
    return { ...scenario, about: scenario.about ?? '', artifact: scenario.artifact ?? 'own' }
  })
}

function parsed(file: string, text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (cause) {
    throw wrong(file, `text that is not JSON (${(cause as Error).message})`, 'a JSON list')
  }
}

interface Problem {
  readonly found: string
  readonly expected: string
}

function problemOf(entry: unknown): Problem | undefined {
  if (typeof entry !== 'object' || entry === null || Array.isArray(entry))
    return { found: 'no object', expected: 'an object with a name' }
  const fields = entry as Readonly<Record<string, unknown>>
  const unknown = Object.keys(fields).find(key => !FIELDS.includes(key))
  if (unknown !== undefined)
    return { found: `field ${JSON.stringify(unknown)}`, expected: `fields ${FIELDS.join(', ')}` }
  const { name, about = '', artifact = 'own' } = fields
  if (typeof name !== 'string' || !/^[a-z][a-z0-9_]{0,30}$/.test(name))
    return { found: `name ${JSON.stringify(name)}`, expected: 'lower-case letters, digits and _' }
  if (typeof about !== 'string') return { found: 'about that is no text', expected: 'text' }
  if (!ARTIFACT_KINDS.some(kind => kind === artifact))
    return { found: `artifact ${JSON.stringify(artifact)}`, expected: `one of ${ARTIFACT_KINDS.join(', ')}` }
  for (const [key, { min, max }] of Object.entries(NUMBERS)) {
    const value = fields[key]
    if (value !== undefined && !(typeof value === 'number' && value >= min && value <= max))
      return { found: `${key} ${JSON.stringify(value)}`, expected: `a number from ${min} to ${max}` }
  }
  return fields['burstSeconds'] !== undefined && fields['daySeconds'] !== undefined
    ? { found: 'burstSeconds and daySeconds', expected: 'one of them' }
    : undefined
}

function wrong(file: string, found: string, expected: string): EldrError {
  const todo = 'Correct the file; docs/evidence/drift.md has an example.'
  return new EldrError('ELDR_FILE_WRONG_KIND', { file, found, expected, todo })
}
