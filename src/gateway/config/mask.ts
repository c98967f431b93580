/** Settings as anybody may see them. Everything that shows settings (start, `eldr config print`, GET /eldr/config) shows these. */
import type { Settings } from './settings.ts'

/** Never accepted as a secret, so that what was printed cannot come back as a key that everybody knows. */
export const MASK = '********'

/** Not even how long a secret is, nor how it begins: that is enough to tell some apart. */
export function masked(settings: Settings): Settings {
  const { server, workers, observe } = settings
  return {
    ...settings,
    server: {
      ...server,
      apiKeys: server.apiKeys.map(() => MASK),
      ...(server.adminToken !== undefined && { adminToken: MASK }),
    },
    workers: { ...workers, ...(workers.apiKey !== undefined && { apiKey: MASK }) },
    observe: { ...observe, traces: { ...observe.traces, headers: observe.traces.headers.map(() => MASK) } },
  }
}
