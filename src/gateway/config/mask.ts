/**
 * Masks the secrets in settings. Used wherever settings are shown: at start, by `eldr config print` and by
 * GET /eldr/config.
 */
import { MASK } from './mask-text.ts'
import type { Settings } from './settings.ts'
import { maskedStore } from './store-url.ts'

export { MASK }

/** Hides length and prefix of a secret too, since they can identify it. */
export function masked(settings: Settings): Settings {
  const { server, workers, replicas, observe } = settings
  return {
    ...settings,
    server: {
      ...server,
      apiKeys: server.apiKeys.map(() => MASK),
      ...(server.adminToken !== undefined && { adminToken: MASK }),
    },
    workers: { ...workers, ...(workers.apiKey !== undefined && { apiKey: MASK }) },
    replicas: { ...replicas, ...(replicas.url !== undefined && { url: maskedStore(replicas.url) }) },
    observe: { ...observe, traces: { ...observe.traces, headers: observe.traces.headers.map(() => MASK) } },
  }
}
