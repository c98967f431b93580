/** Health, metrics, version, the OpenAPI document and the dashboard's files. */
import { json, type JsonObject, type Operation } from './operation.ts'

const TEXT: JsonObject = { type: 'string' }
const own = (path: string, id: string, summary: string, responses: Operation['responses']): Operation => ({
  method: 'get',
  path,
  id,
  tag: 'gateway',
  summary,
  access: 'public',
  responses,
  refuses: [],
})

export const OWN_OPERATIONS: readonly Operation[] = [
  own('/health', 'health', 'Liveness', {
    200: { text: 'The process is alive.', content: json('Health', { status: 'ok' }) },
  }),
  own('/ready', 'ready', 'Readiness', {
    200: {
      text: 'The gateway can serve requests.',
      content: json('Readiness', { status: 'ready', prefill: 2, decode: 4 }),
    },
    503: {
      text: 'The gateway cannot serve requests.',
      content: json('Readiness', { status: 'waiting for workers', prefill: 0, decode: 4 }),
    },
  }),
  {
    ...own('/metrics', 'metrics', 'Metrics in Prometheus text format', {
      200: {
        text: 'Metrics; see docs/reference/metrics.md.',
        content: { 'text/plain': { schema: TEXT } },
      },
    }),
    description: 'Served on a separate port if server.metricsPort is set.',
  },
  own('/version', 'version', 'Version of the gateway', {
    200: { text: 'Version of the package.', content: json('Version', { version: '0.1.0' }) },
  }),
  own('/openapi.json', 'openapi', 'OpenAPI document of this gateway', {
    200: {
      text: 'OpenAPI 3.1 document, without routes that the settings disable.',
      content: json({ type: 'object' }),
    },
  }),
]

const page = (path: string, id: string, summary: string, type: string): Operation => ({
  ...own(path, id, summary, {
    200: { text: 'The file.', content: { [type]: { schema: TEXT } }, headers: { ETag: 'Etag' } },
    304: { text: 'Not modified (If-None-Match).', headers: { ETag: 'Etag' } },
  }),
  tag: 'dashboard',
})

/** Disabled if observe.dashboard is off. */
export const PAGE_OPERATIONS: readonly Operation[] = [
  page('/dashboard', 'dashboardPage', 'The dashboard', 'text/html'),
  page('/dashboard/app.js', 'dashboardScript', 'Script of the dashboard', 'text/javascript'),
  page('/dashboard/app.css', 'dashboardStyle', 'Style sheet of the dashboard', 'text/css'),
  page('/dashboard/icon.svg', 'dashboardIcon', 'Icon of the dashboard', 'image/svg+xml'),
  {
    ...own('/dashboard/', 'dashboardSlash', 'Redirect to the dashboard', {
      308: {
        text: 'Redirect to /dashboard.',
        content: { 'text/plain': { schema: TEXT } },
        headers: { Location: 'Location' },
      },
    }),
    tag: 'dashboard',
  },
]
