import { openPool, type Pool } from './parallel.ts'
import type { SimulationResult } from './result.ts'
import type { StudyData, StudyJob } from './study.ts'

/** Runs of studies on all cores. Jobs override parts of `data`. */
export function openStudy(data: StudyData, threads?: number): Pool<StudyJob, SimulationResult> {
  const module = new URL(`./study${import.meta.url.slice(import.meta.url.lastIndexOf('.'))}`, import.meta.url)
  return openPool({ module, data, threads })
}
