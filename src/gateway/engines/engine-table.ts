/**
 * The engines by name. `workers.engine` of the configuration, its schema and its type come from this table.
 * Adapters are loaded when a gateway starts, so that reading the names costs nothing.
 */
import type { EngineAdapter, EngineOptions } from './engine.ts'

type CreateEngine = (options: EngineOptions) => EngineAdapter

export const ENGINES = {
  'vllm-nixl': async (): Promise<CreateEngine> => (await import('./vllm-nixl.ts')).vllmNixl,
} as const

export type EngineName = keyof typeof ENGINES

export const ENGINE_NAMES = Object.keys(ENGINES) as [EngineName, ...EngineName[]]

export async function loadEngine(name: EngineName, options: EngineOptions): Promise<EngineAdapter> {
  const create = await ENGINES[name]()
  return create(options)
}
