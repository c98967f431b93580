/** Kinds of values that settings have, each with words for what was expected. */
import * as z from 'zod'
import { MASK } from '../mask.ts'

const DAY_MS = 86_400_000

/** A band wider than this is all of them: cosines differ by 2 at most. */
export const MAX_TAU = 2

export const whole = (min: number, max: number) => z.int().min(min).max(max)
export const ms = (min = 1) => whole(min, DAY_MS)
/** Above 0. */
export const share = () => z.number().gt(0).max(1)
/** `expected` reads well after that word. */
export const text = (expected: string, pattern: RegExp = /./) =>
  z.string({ error: expected }).regex(pattern, { error: expected })
export const file = (what: string) => text(`the path of ${what}`)
/** Both spellings of a policy are taken. */
export const spellings = <Name extends string>(names: readonly Name[]) =>
  z.enum([...names, ...names.filter(name => name.includes('_')).map(name => name.replaceAll('_', '-'))])

/** Goes into a header, so visible ASCII; `writeOnly` marks in the JSON Schema what must not be shown. */
export const secret = () =>
  text('a key of visible ASCII characters without blanks', /^[\x21-\x7e]+$/)
    .refine(value => value !== MASK, {
      error: 'this is a masked secret, as `eldr config print` shows it: put in the real one',
    })
    .meta({ writeOnly: true })

export const address = (example: string, wrong: (text: string) => string | undefined) =>
  z
    .string({ error: `a URL such as ${example}` })
    .superRefine((value, context) => {
      const message = wrong(value)
      if (message !== undefined) context.addIssue({ code: 'custom', message })
    })
    .meta({ format: 'uri' })
