/** Reads the folder of results for the page: results, predictions, and profiles fitted to the results. */
import { createHash } from 'node:crypto'
import { readdir } from 'node:fs/promises'
import { loadProfile, parseProfile, profileNames } from '../cost/profile-file.ts'
import type { CostProfile } from '../cost/profile.ts'
import type { GpuEvidence } from './gpu-page.ts'
import { parsePrediction } from './prediction.ts'
import type { HashedPrediction } from './prediction-section.ts'
import type { ProfiledShape } from './profile-section.ts'
import { parseServedResult, RENAMED_AT, type ResultOf, type ServedResult } from './result-file.ts'
import { resultText, writtenName } from '../report/result-text.ts'
import { servedProfile } from './served-profile.ts'

/** Simulations, made before the runs or after them; the others are results. */
const SIMULATED = /^(predicted|simulated)-.*\.json$/
/** The profile that the predictions were made with. */
const PREDICTED_WITH = 'served-profile.json'

export async function readEvidence(folder: URL): Promise<GpuEvidence> {
  const files = (await readdir(folder).catch(() => [])).filter(name => /\.json(\.br)?$/.test(name)).toSorted()
  refuseTwins(files)
  const results: ServedResult[] = []
  const predictions = new Map<string, HashedPrediction>()
  let predictedWith: CostProfile | undefined
  for (const saved of files) {
    const file = writtenName(saved)
    const text = await readable(saved, () => resultText(new URL(saved, folder)))
    const value = await readable(saved, () => JSON.parse(text) as unknown)
    if (file === PREDICTED_WITH) predictedWith = parseProfile(file, text)
    else if (SIMULATED.test(file)) {
      const sha256 = createHash('sha256').update(text).digest('hex')
      predictions.set(file, { prediction: parsePrediction(file, value), sha256 })
    } else {
      const result = parseServedResult(file, value)
      if (result !== undefined) results.push(result)
    }
  }
  for (const result of results) {
    if (result.kind !== 'served' || result.conditions.date >= RENAMED_AT) continue
    for (const run of result.served.runs) run.policy = presentName(run.policy)
    for (const made of ['predicted', 'simulated'])
      for (const point of predictions.get(`${made}-${result.name}.json`)?.prediction.points ?? [])
        point.variant = presentName(point.variant)
  }
  return { results, predictions, predictedWith, shapes: await shapesOf(results) }
}

/** One of the two would be counted a second time, or be older than the other. */
function refuseTwins(files: readonly string[]): void {
  for (const saved of files) {
    const twin = files.find(other => other !== saved && writtenName(other) === writtenName(saved))
    if (twin !== undefined)
      throw new Error(`${saved} and ${twin} are both results of one name: delete the one that is not current`)
  }
}

/** Names the file in what goes wrong with it. */
async function readable<T>(file: string, read: () => T | Promise<T>): Promise<T> {
  try {
    return await read()
  } catch (error) {
    throw new Error(`${file}: damaged, restore or delete it: ${(error as Error).message}`, { cause: error })
  }
}

const PRESENT_NAMES: Readonly<Record<string, string>> = { eldr: 'band' }
const presentName = (policy: string): string => PRESENT_NAMES[policy] ?? policy

/** Profiles of the engines that ran alone, beside those of the same shape in plain torch. */
async function shapesOf(results: readonly ServedResult[]): Promise<ProfiledShape[]> {
  const names = await profileNames()
  const alone = results.filter(
    (result): result is ResultOf<'profile'> =>
      result.kind === 'profile' && (result.profile.engines ?? 1) === 1,
  )
  return Promise.all(
    alone.map(async result => {
      const name = `h200-${result.model.name}`
      const torch: CostProfile | undefined = names.includes(name) ? await loadProfile(name) : undefined
      const { profile: served, fit } = servedProfile(result, torch)
      const { bytesPerExpert, dtype } = result.model
      return { served, fit, torch, bytesPerExpert, dtype }
    }),
  )
}
