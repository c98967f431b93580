/** Sources of a simulation report: the input files with their hashes, and the provenance of the profile. */
import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { loadProfile } from '../cost/profile-file.ts'
import { EldrError } from '../errors.ts'
import type { HashedFile, SimulationSources } from '../report/simulation-report.ts'
import type { StudyData } from '../sim/study.ts'
import { withSafetensors } from '../trace/safetensors-file.ts'
import { withTrace } from '../trace/trace.ts'

export async function sourcesOf({
  trace,
  artifact,
  workload,
  profile,
}: StudyData): Promise<SimulationSources> {
  const { name, provenance, shape } = await loadProfile(profile)
  return {
    trace: await withTrace(trace, async opened => ({
      file: trace,
      sha256: await opened.sha256(),
      model: opened.model,
      shape: { layers: opened.layers, experts: opened.experts, topK: opened.topK },
    })),
    artifact:
      artifact === undefined
        ? undefined
        : { file: artifact, sha256: await withSafetensors(artifact, file => file.sha256()) },
    workload: workload === undefined ? undefined : await hashedText(workload.file),
    profile: { name, what: provenance.what, shape },
  }
}

async function hashedText(file: string): Promise<HashedFile> {
  const bytes = await readFile(file).catch((cause: unknown) => {
    throw new EldrError('ELDR_FILE_UNREADABLE', { file, cause })
  })
  return { file, sha256: createHash('sha256').update(bytes).digest('hex') }
}
