/** The simulated parts of a report, and their loads. */
import type { Exhibit } from '../report/exhibit.ts'
import { balance, bandWidth, transforms } from './ablations.ts'
import { activeByBatch } from './active-experts.ts'
import { burstLoads, bursts } from './bursts.ts'
import type { Simulated } from './cells.ts'
import type { Context } from './context.ts'
import { foresight } from './foresight.ts'
import { asPrototype, BATCHES, expertParallel, FEW_BATCHES, type Load, measured, served } from './loads.ts'
import { ALL_POLICIES, mainResults, QUICK_POLICIES } from './main-results.ts'
import { onMeasuredProfile } from './measured-profile.ts'
import { prefixCache } from './prefix-cache.ts'
import { againstPrototype } from './prototype.ts'
import { decoderPools, EP_BATCHES, expertParallelism } from './scale.ts'

type Section = readonly Simulated<Exhibit>[]

export interface Parts {
  readonly main: Section
  readonly validation: Section
  readonly scale: Section
  readonly beyond: Section
}

export function allParts(context: Context): Parts {
  const figures = context.workloads.map(workload => mainResults(context, workload, ALL_POLICIES, BATCHES))
  return {
    main: [...figures, againstPrototype(context), onMeasuredProfile(context)],
    validation: [
      activeByBatch(context),
      transforms(context),
      balance(context),
      bandWidth(context),
      prefixCache(context),
    ],
    scale: [expertParallelism(context), decoderPools(context)],
    beyond: [bursts(context), foresight(context)],
  }
}

export function quickParts(context: Context): Parts {
  const main = context.workloads.map(workload => mainResults(context, workload, QUICK_POLICIES, FEW_BATCHES))
  return { main, validation: [], scale: [], beyond: [] }
}

type Sources = Pick<Context, 'workloads' | 'recorded'>

const atBatches = (batches: readonly number[], load: Omit<Load, 'batch'>): Load[] =>
  batches.map(batch => ({ ...load, batch }))

export function quickLoads({ workloads }: Sources): Load[] {
  return workloads.flatMap(of =>
    atBatches(FEW_BATCHES, { setting: served(of), decodeSteps: of.evaluation.decodeSteps }),
  )
}

export function allLoads(sources: Sources): Load[] {
  const { workloads } = sources
  const lang = workloads[1]
  return [
    ...workloads.flatMap(of =>
      [served(of), asPrototype(of), measured(of)].flatMap(setting =>
        atBatches(BATCHES, { setting, decodeSteps: of.evaluation.decodeSteps }),
      ),
    ),
    ...atBatches(EP_BATCHES, { setting: expertParallel(lang), decodeSteps: lang.evaluation.decodeSteps }),
    ...burstLoads(sources),
  ]
}
