/** Building blocks of the schema. Each says what it expects. */
import * as z from 'zod'
import { MASK } from '../mask.ts'

const DAY_MS = 86_400_000

/** Cosines differ by at most 2, so a wider band would not add candidates. */
export const MAX_TAU = 2

export const whole = (min: number, max: number) => z.int().min(min).max(max)
export const ms = (min = 1) => whole(min, DAY_MS)
/** A number above 0, up to 1. */
export const share = () => z.number().gt(0).max(1)
/** `expected`: what is expected, used in messages after “expected”. */
export const text = (expected: string, pattern: RegExp = /./) =>
  z.string({ error: expected }).regex(pattern, { error: expected })
export const file = (what: string) => text(`the path of ${what}`)
/** Accepts policy names with _ or -. */
export const spellings = <Name extends string>(names: readonly Name[]) =>
  z.enum([...names, ...names.filter(name => name.includes('_')).map(name => name.replaceAll('_', '-'))])

/** Visible ASCII, since it is sent in a header. `writeOnly` marks secrets in the JSON Schema. */
export const secret = () =>
  text('a key of visible ASCII characters without spaces', /^[\x21-\x7e]+$/)
    .refine(value => value !== MASK, {
      error: 'this is a secret masked by `eldr config print`: use the real one',
    })
    .meta({ writeOnly: true })

export const address = (example: string, problemIn: (text: string) => string | undefined) =>
  z
    .string({ error: `a URL such as ${example}` })
    .superRefine((value, context) => {
      const message = problemIn(value)
      if (message !== undefined) context.addIssue({ code: 'custom', message })
    })
    .meta({ format: 'uri' })
