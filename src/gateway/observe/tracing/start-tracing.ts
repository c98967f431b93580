/** Creates a tracer and its exporter from the settings. Without tracing no HTTP client is loaded. */
import { randomUUID } from 'node:crypto'
import { VERSION } from '../../../version.ts'
import type { TraceSettings } from '../../config/settings.ts'
import { Exporter, type ExporterParts } from './exporter.ts'
import { encodeResource } from './otlp.ts'
import { Tracer } from './tracer.ts'

export interface Tracing {
  readonly tracer: Tracer
  /** Sends the remaining spans, within `flushMs`. */
  close(): Promise<void>
}

export async function startTracing(
  settings: TraceSettings,
  parts: Pick<ExporterParts, 'metrics' | 'log' | 'rateLimitedLog'>,
): Promise<Tracing | undefined> {
  const { endpoint, serviceName, sampleRatio } = settings
  if (endpoint === undefined) return undefined
  const { createPost } = await import('./post.ts')
  const resource = encodeResource({ serviceName, version: VERSION, instanceId: randomUUID() })
  const exporter = new Exporter(settings, { post: createPost({ ...settings, endpoint }), resource, ...parts })
  return { tracer: new Tracer(exporter, sampleRatio), close: () => exporter.close() }
}
