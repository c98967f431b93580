import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { fit, type FitOptions, type Fitted } from '../src/fit/fit.ts'
import { createStages } from '../src/fit/stages.ts'
import { withTrace } from '../src/trace/trace.ts'

/** A shipped trace. */
export const shipped = (name: string): string =>
  fileURLToPath(new URL(`../data/${name}.safetensors`, import.meta.url))

/** A full trace next to the checkout, which users do not have; undefined if it is missing. */
export function whole(name: string): string | undefined {
  const path = fileURLToPath(new URL(`../../shared/traces/${name}.safetensors`, import.meta.url))
  return existsSync(path) ? path : undefined
}

export const DEFAULTS: FitOptions = {
  workers: 16,
  transform: 'auto',
  layers: 'auto',
  balance: 'exact',
  restarts: 2,
  pairs: 20_000,
  seed: 0,
  batch: 32,
}

export function fitFile(path: string, options: Partial<FitOptions> = {}): Promise<Fitted> {
  return withTrace(path, trace => fit(trace, { ...DEFAULTS, ...options }, createStages()))
}
