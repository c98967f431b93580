import { EldrError } from '../errors.ts'
import { artifactOf } from '../fit/artifact-read.ts'
import { ARTIFACT_FORMAT } from '../fit/artifact-write.ts'
import { PLACEMENT_FORMAT, placementIn } from '../fit/placement-file.ts'
import { artifactView, placementView, traceView, type View } from '../report/inspect-view.ts'
import { stageProgress } from '../report/progress.ts'
import { terminalOn } from '../report/terminal.ts'
import { withSafetensors } from '../trace/safetensors-file.ts'
import { TRACE_FORMAT } from '../trace/trace-layout.ts'
import { withTrace } from '../trace/trace.ts'
import { traceStats } from '../trace/trace-stats.ts'
import type { InspectFlags } from './inspect.ts'

/** `eldr inspect` */
export async function inspectAction(path: string, flags: InspectFlags): Promise<void> {
  const out = terminalOn(process.stdout)
  const view = await viewOf(path)
  out.write(flags.json ? `${JSON.stringify(view.json, null, 2)}\n` : `${view.text(out)}\n`)
}

/**
 * The kind comes from the file's metadata. Another version of a known kind and an unknown kind are different
 * errors.
 */
async function viewOf(path: string): Promise<View> {
  const kind = await withSafetensors(path, async file => {
    const format = file.metadata['format'] ?? ''
    const tensors = [...file.tensors.values()]
    if (format.startsWith(kindOf(ARTIFACT_FORMAT)))
      return artifactView(await artifactOf(file), path, file.size, tensors)
    if (format.startsWith(kindOf(PLACEMENT_FORMAT)))
      return placementView(await placementIn(file), path, file.size, tensors)
    if (format.startsWith(kindOf(TRACE_FORMAT))) return file.size
    throw new EldrError('ELDR_FILE_WRONG_KIND', {
      file: path,
      found:
        format === ''
          ? 'a safetensors file without a format in its metadata'
          : `format ${JSON.stringify(format)}`,
      expected: [TRACE_FORMAT, ARTIFACT_FORMAT, PLACEMENT_FORMAT].join(', '),
      todo: '`eldr inspect` reads only files of ELDR; open others with Python’s safetensors.',
    })
  })
  if (typeof kind !== 'number') return kind
  const watch = stageProgress(terminalOn(process.stderr), process.stderr.isTTY !== true)
  return withTrace(path, async trace => {
    const stats = await traceStats(trace, (done, total) => watch.progress?.('requests', done, total))
    watch.clear?.()
    return traceView(trace, stats, kind)
  })
}

const kindOf = (format: string) => format.slice(0, format.lastIndexOf('.') + 1)
