// Checks that comments in TypeScript and JavaScript stay within the width of the code, which the formatter
// does not wrap. Run by `npm run lint`.
//   node scripts/comment-width.mjs [PATH…]
import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseSync } from 'rolldown/utils'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const MAX_WIDTH = 110
const SOURCE = /\.(ts|tsx|mjs|js)$/

/** Numbers of the lines that are too wide and have a comment, from 1. */
export function wideComments(file, text) {
  const lines = text.split('\n')
  if (lines.every(line => line.length <= MAX_WIDTH)) return []
  const { comments } = parseSync(file, text)
  let start = 0
  return lines.flatMap((line, at) => {
    const [from, to] = [start, start + line.length]
    start = to + 1
    const isWide = line.length > MAX_WIDTH && comments.some(each => each.start < to && each.end > from)
    return isWide ? [at + 1] : []
  })
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const paths = process.argv.slice(2).map(path => relative(ROOT, resolve(path)))
  const files = execFileSync('git', ['ls-files', '-co', '--exclude-standard', '--', ...paths], {
    cwd: ROOT,
    encoding: 'utf8',
  })
    .split('\n')
    .filter(file => SOURCE.test(file) && existsSync(ROOT + file))
  const found = files.flatMap(file =>
    wideComments(file, readFileSync(ROOT + file, 'utf8')).map(line => `${file}:${line}`),
  )
  for (const where of found) console.error(`${where}: wrap the comment at ${MAX_WIDTH} characters`)
  process.exitCode = found.length > 0 ? 1 : 0
}
