/** Compares what a client received with the known answer: whole, or a part from its start. */
import type { KnownAnswer, Observation } from '../observation.ts'

/** Problems of the content as [kind, details]; empty if there are none. */
export function answerProblems(seen: Observation, known: KnownAnswer): [what: string, detail: string][] {
  const problems: [string, string][] = []
  const isWhole = seen.end === 'ended' && seen.codes.length === 0
  const tokens = seen.ids && tokenProblem(seen.ids, known.ids, isWhole)
  if (tokens !== undefined) problems.push(tokens)
  else if (isWhole ? seen.text !== known.text : !known.text.startsWith(seen.text))
    problems.push(['changed text', `${differ(seen.text, known.text)}`])
  if (isWhole && seen.finishes.length === 1 && seen.finishes[0] !== known.finish)
    problems.push(['changed finish reason', `${seen.finishes[0]} instead of ${known.finish}`])
  // An answer that breaks off has no finish reason, unless all of it had arrived.
  if (!isWhole && seen.finishes.length > 0 && seen.text !== known.text)
    problems.push(['finish reason of a broken answer', seen.finishes.join()])
  if (seen.usage !== undefined && isWhole) {
    const { prompt, completion } = seen.usage
    if (prompt !== known.promptTokens || completion !== known.ids.length)
      problems.push([
        'changed usage',
        `${prompt} + ${completion} instead of ${known.promptTokens} + ${known.ids.length}`,
      ])
  }
  if (seen.names > 1) problems.push(['changed id', 'id or created differ within one answer'])
  for (const text of seen.malformed) problems.push(['malformed response', text])
  return problems
}

function tokenProblem(
  seen: readonly number[],
  known: readonly number[],
  isWhole: boolean,
): [what: string, detail: string] | undefined {
  const at = known.findIndex((token, index) => index < seen.length && seen[index] !== token)
  if (at === -1) {
    if (seen.length > known.length)
      return ['repeated token', `${seen.length} tokens instead of ${known.length}`]
    if (isWhole && seen.length < known.length)
      return ['lost token', `${seen.length} tokens of ${known.length}, and no error`]
    return undefined
  }
  const where = `token ${at} is ${seen[at]} instead of ${known[at]}`
  // The rest continues from an earlier position, or from a later one.
  if (continues(seen, at, known, back => at - back)) return ['repeated token', where]
  if (continues(seen, at, known, ahead => at + ahead)) return ['lost token', where]
  return ['changed token', where]
}

/** Whether the tokens from `at` on are the known ones from another position, up to 64 tokens away. */
function continues(
  seen: readonly number[],
  at: number,
  known: readonly number[],
  from: (distance: number) => number,
): boolean {
  const rest = seen.slice(at, at + 8)
  for (let distance = 1; distance <= 64; distance++) {
    const start = from(distance)
    if (start < 0 || start >= known.length) return false
    const there = known.slice(start, start + rest.length)
    if (there.length > 0 && there.every((token, index) => token === (rest[index] ?? token))) return true
  }
  return false
}

function differ(seen: string, known: string): string {
  let at = 0
  while (at < seen.length && seen[at] === known[at]) at++
  return `from character ${at} on: ${JSON.stringify(seen.slice(at, at + 40))} instead of ${JSON.stringify(known.slice(at, at + 40))}`
}
