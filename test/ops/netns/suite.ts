/** For suites that need network namespaces. Without them they are skipped, and one line says why. */
import { whyNoNamespaces } from './root.ts'

const why = whyNoNamespaces()
if (why !== undefined) process.stderr.write(`skipping tests across machines: ${why}\n`)

export const NO_NAMESPACES = why !== undefined
