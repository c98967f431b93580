/** A Containerfile as a list of its steps, stage by stage. */

export interface Step {
  readonly instruction: string
  /** Without the flags. */
  readonly value: string
  readonly flags: Readonly<Record<string, string>>
}

export interface Stage {
  readonly base: string
  readonly name: string | undefined
  readonly steps: readonly Step[]
}

export function stagesOf(text: string): Stage[] {
  const stages: { base: string; name: string | undefined; steps: Step[] }[] = []
  const lines = text
    .replaceAll(/^\s*#.*\n/gm, '')
    .replaceAll(/\\\n\s*/g, ' ')
    .split('\n')
  for (const line of lines.filter(one => one.trim() !== '')) {
    const [, instruction, given, rest] = /^([A-Z]+) ((?:--\S+ )*)(.*)$/.exec(line)!
    const flags = Object.fromEntries(
      given!
        .trim()
        .split(' ')
        .filter(flag => flag !== '')
        .map(flag => flag.slice(2).split('=', 2) as [string, string]),
    )
    if (instruction === 'FROM')
      stages.push({ base: rest!.split(' ')[0]!, name: / AS (\S+)$/.exec(rest!)?.[1], steps: [] })
    else stages.at(-1)?.steps.push({ instruction: instruction!, value: rest!, flags })
  }
  return stages
}

/** The value of the last step of a kind, which is the one that counts. */
export function lastOf({ steps }: Stage, instruction: string): string {
  const step = steps.findLast(one => one.instruction === instruction)
  if (step === undefined) throw new Error(`no ${instruction}`)
  return step.value
}

/** What stands in exec form: ["a", "b"]. */
export const execForm = (value: string): string[] => JSON.parse(value) as string[]

/** A=b C=d */
export const environmentOf = (value: string): Record<string, string> =>
  Object.fromEntries(value.split(' ').map(pair => pair.split('=', 2) as [string, string]))
