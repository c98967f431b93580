// Lets Node 20 run this suite's TypeScript outside Vitest: `node --import ./test/chaos/typescript.mjs
// FILE.ts`. Types are removed file by file, as `erasableSyntaxOnly` in tsconfig.json allows.
import { readFile } from 'node:fs/promises'
import { register } from 'node:module'
import { fileURLToPath } from 'node:url'
import { isMainThread } from 'node:worker_threads'
import { transformSync } from 'rolldown/utils'

// Node calls the hook below in a thread of its own, which imports this file again.
if (isMainThread) register(import.meta.url)

/** @type {import('node:module').LoadHook} */
export async function load(url, context, next) {
  if (!url.startsWith('file:') || !url.endsWith('.ts')) return next(url, context)
  const path = fileURLToPath(url)
  const { code, errors } = transformSync(path, await readFile(path, 'utf8'))
  if (errors.length > 0) throw new SyntaxError(`${path}: ${errors.map(({ message }) => message).join('; ')}`)
  return { format: 'module', source: code, shortCircuit: true }
}
