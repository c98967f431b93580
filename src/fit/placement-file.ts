import { EldrError } from '../errors.ts'
import * as check from '../trace/file-checks.ts'
import type { SafetensorsFile } from '../trace/safetensors-file.ts'
import { writeSafetensors } from '../trace/safetensors-write.ts'
import type { FullestRank, ExpertPlacement } from './expert-placement.ts'

export const PLACEMENT_FORMAT = 'eldr.placement.v1'

/** A placement and what it was made for: an engine must not load it for another model. */
export interface PlacementFile extends ExpertPlacement {
  readonly model: string
  readonly traceSha256: string
}

export async function writePlacement(path: string, placement: PlacementFile): Promise<void> {
  const { clusters, layers, experts, ranks, batch, rankOf, order, fullest, model, traceSha256 } = placement
  const shape = [clusters, layers, experts]
  await writeSafetensors(path, {
    metadata: {
      format: PLACEMENT_FORMAT,
      model,
      clusters: `${clusters}`,
      layers: `${layers}`,
      experts: `${experts}`,
      ranks: `${ranks}`,
      batch: `${batch}`,
      fullest_rank: JSON.stringify(
        fullest.map(({ linear, global, own, ideal }) => [linear, global, own, ideal]),
      ),
      trace_sha256: traceSha256,
    },
    tensors: { rank: { dtype: 'U16', shape, data: rankOf }, order: { dtype: 'U16', shape, data: order } },
  })
}

export async function placementIn(from: SafetensorsFile): Promise<PlacementFile> {
  const { path, metadata } = from
  check.checkFormat(path, metadata['format'], PLACEMENT_FORMAT)
  const number = (key: string, max: number) => check.wholeNumber(path, metadata, key, max)
  const [clusters, layers, experts] = [
    number('clusters', 65_535),
    number('layers', 4_096),
    number('experts', 65_536),
  ]
  const [ranks, batch] = [number('ranks', experts), number('batch', 1_000_000)]
  if (experts % ranks !== 0)
    throw check.badMetadata(
      path,
      `${ranks} ranks for ${experts} experts`,
      'a number that divides them evenly',
    )
  const isFullest = (value: unknown): value is number[][] =>
    Array.isArray(value) &&
    value.length === clusters &&
    value.every(item => check.isNumberList(item) && item.length === 4)
  const fullest = check.jsonOf(path, metadata, 'fullest_rank', 'four numbers for each cluster', isFullest)
  const shape = [clusters, layers, experts]
  const [rankOf, order] = [
    await check.readTensor(from, 'rank', 'U16', shape),
    await check.readTensor(from, 'order', 'U16', shape),
  ]
  checkAgreement(path, rankOf, order, experts, ranks)
  return {
    model: check.textOf(path, metadata, 'model'),
    traceSha256: check.textOf(path, metadata, 'trace_sha256'),
    clusters,
    layers,
    experts,
    ranks,
    batch,
    rankOf,
    order,
    fullest: fullest.map(([linear, global, own, ideal]): FullestRank => ({
      linear: linear!,
      global: global!,
      own: own!,
      ideal: ideal!,
    })),
  }
}

/**
 * Every layer's order names each expert once, in a slot of the rank given by `rank`, so that an engine that
 * loads it has every expert.
 */
function checkAgreement(
  file: string,
  rankOf: Uint16Array,
  order: Uint16Array,
  experts: number,
  ranks: number,
): void {
  const seen = new Uint8Array(experts)
  for (let from = 0; from < order.length; from += experts) {
    seen.fill(0)
    for (let slot = 0; slot < experts; slot++) {
      const expert = order[from + slot]!
      if (
        expert >= experts ||
        seen[expert] === 1 ||
        rankOf[from + expert] !== Math.floor((slot * ranks) / experts)
      ) {
        const found = `expert ${expert} in slot ${slot} of row ${from / experts} of order`
        throw new EldrError('ELDR_TENSOR_BAD_VALUE', {
          file,
          found,
          expected: 'each expert once, in a slot of its rank',
        })
      }
      seen[expert] = 1
    }
  }
}
