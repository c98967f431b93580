import { EldrError } from '../errors.ts'
import type { Artifact } from './artifact.ts'
import { type ExpertPlacement, placeExperts } from './expert-placement.ts'

/** Places experts for the clusters of an artifact, using its decode patterns. `file` is named in errors. */
export function placementOf(
  { about, calibration }: Artifact,
  ranks: number,
  batch: number,
  file: string,
): ExpertPlacement {
  if (calibration.patterns === undefined) {
    const todo = 'Fit a trace with decode_counts and decode_steps.'
    throw new EldrError('ELDR_TENSOR_MISSING', {
      file,
      found: 'no decode data',
      expected: 'decode patterns, from which experts are placed',
      todo,
    })
  }
  if (about.experts % ranks !== 0) throw unevenRanks(file, ranks, about.experts)
  return placeExperts({
    ...about,
    ...calibration,
    patterns: calibration.patterns,
    clusters: about.workers,
    ranks,
    batch,
  })
}

export function unevenRanks(file: string, ranks: number, experts: number): EldrError {
  const expected = 'a number of ranks that divides the experts evenly'
  return new EldrError('ELDR_FIT_BAD_OPTION', {
    file,
    found: `${ranks} ranks for ${experts} experts`,
    expected,
  })
}
