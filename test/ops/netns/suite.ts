/** Suites that need network namespaces. Where there are none they are left out, and one line says why. */
import { whyNoNamespaces } from './root.ts'

const why = whyNoNamespaces()
if (why !== undefined) process.stderr.write(`tests across machines are left out: ${why}\n`)

export const NO_NAMESPACES = why !== undefined
