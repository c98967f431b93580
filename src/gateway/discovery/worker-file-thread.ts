/** The thread of worker-file-beside.ts: reads one file's text and tells what is in it. */
import { setPriority } from 'node:os'
import { parentPort, workerData } from 'node:worker_threads'
import { LookupFailure, type Report } from './source.ts'
import type { FileText } from './worker-file-beside.ts'
import { readWorkerFile } from './worker-file.ts'

// On Linux a priority is a thread's own: where cores are few, requests come before it. Elsewhere it would be the whole process's.
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
