/** Looks for the shortest schedule that fails in the same way: no faults, the last round, parts of it. */
import type { Step } from './adversary/schedule.ts'
import { run, type RunOptions, type RunResult } from './run.ts'
import { shrink } from './shrink.ts'

/** Returns the command that repeats it, with the steps in words. */
export async function reproduction(plan: RunOptions, failed: RunResult, limitMs: number): Promise<string> {
  const kinds = new Set(failed.checker.violations.map(({ what }) => what))
  const endMs = performance.now() + limitMs
  const mayRun = () => performance.now() < endMs
  let reruns = 0
  const fails = async (steps: readonly Step[]) => {
    plan.say(`rerun ${++reruns}: ${steps.length} steps`)
    const only = new Set(steps.map(({ id }) => id))
    const { checker } = await run({ ...plan, only, totalMs: Infinity, say: () => {} })
    return checker.violations.some(({ what }) => kinds.has(what))
  }
  const roundOf = ({ id }: Step) => Number(id.split(':')[0])
  const last = failed.steps.at(-1) === undefined ? -1 : roundOf(failed.steps.at(-1)!)
  const isAlone = mayRun() && (await fails([]))
  // What came before rarely matters.
  let start: readonly Step[] = failed.steps
  for (let rounds = isAlone ? Infinity : 1; rounds <= last && mayRun(); rounds *= 2) {
    const some = failed.steps.filter(step => roundOf(step) > last - rounds)
    if (some.length === failed.steps.length || !(await fails(some))) continue
    start = some
    break
  }
  const { items, isMinimal } = isAlone ? { items: [], isMinimal: true } : await shrink(start, fails, mayRun)
  const command = `npm run test:chaos -- --seed ${plan.seed} --only '${items.map(({ id }) => id).join()}'`
  const words = items.map(
    ({ id, kind, targets, atMs, forMs }) =>
      `  ${id} at ${atMs} ms: ${kind} ${targets.join('–')}, ${forMs} ms`,
  )
  const how = isMinimal ? 'shortest reproduction' : 'shortest reproduction within the time'
  return [
    `${how}, ${items.length} of ${failed.steps.length} steps after ${reruns} reruns:`,
    `  ${command}`,
    ...words,
  ].join('\n')
}
