/** Settings as anybody may see them. Everything that shows settings (start, `eldr config print`, GET /eldr/config) shows these. */
import { MASK } from './mask-text.ts'
import type { Settings } from './settings.ts'
import { maskedStore } from './store-url.ts'

export { MASK }

/** Not even how long a secret is, nor how it begins: that is enough to tell some apart. */
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
