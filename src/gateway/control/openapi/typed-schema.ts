/**
 * Schemas checked against a type: they do not compile if one of the two has a member that the other lacks.
 */
import * as z from 'zod'

type Without<A, B> = Exclude<keyof A, keyof B>

/** @example schemaFor<Welcome>()(z.strictObject({ … })) */
export const schemaFor =
  <T>() =>
  <S extends z.ZodType<T>>(
    schema: S,
    ..._missing: [Without<T, z.output<S>> | Without<z.output<S>, T>] extends [never] ? [] : [never]
  ): S =>
    schema

export const count = () => z.int().min(0)
export const milliseconds = () => z.number().min(0)
