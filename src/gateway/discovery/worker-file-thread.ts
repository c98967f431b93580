/** Thread of worker-file-off-thread.ts: parses one file and posts the report. */
import { setPriority } from 'node:os'
import { parentPort, workerData } from 'node:worker_threads'
import { LookupFailure, type Report } from './source.ts'
import type { FileText } from './worker-file-off-thread.ts'
import { readWorkerFile } from './worker-file.ts'

// On Linux the priority is per thread, so that requests take precedence. Elsewhere it would affect the whole
// process.
if (process.platform === 'linux') setPriority(5)

parentPort!.postMessage(reportOf(workerData as FileText), [])

function reportOf({ path, text, defaults }: FileText): Report {
  try {
    return { found: readWorkerFile(path, text, defaults) }
  } catch (error) {
    if (error instanceof LookupFailure) return { problem: error.problem }
    throw error
  }
}
