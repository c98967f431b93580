/** How the gateway is, this document, and the dashboard's page. */
import { json, type JsonObject, type Operation } from './operation.ts'

const TEXT: JsonObject = { type: 'string' }
const own = (path: string, id: string, summary: string, answers: Operation['answers']): Operation => ({
  method: 'get',
  path,
  id,
  tag: 'gateway',
  summary,
  access: 'anybody',
  answers,
  refuses: [],
})

export const OWN_OPERATIONS: readonly Operation[] = [
  own('/health', 'health', 'Whether the process answers (liveness)', {
    200: { words: 'It does.', content: json('Health', { status: 'ok' }) },
  }),
  own('/ready', 'ready', 'Whether requests can be served (readiness)', {
    200: { words: 'They can.', content: json('Readiness', { status: 'ready', prefill: 2, decode: 4 }) },
    503: {
      words: 'They cannot.',
      content: json('Readiness', { status: 'waiting for workers', prefill: 0, decode: 4 }),
    },
  }),
  {
    ...own('/metrics', 'metrics', 'Metrics in Prometheus’ text format', {
      200: {
        words: 'Samples; docs/reference/metrics.md lists them.',
        content: { 'text/plain': { schema: TEXT } },
      },
    }),
    description: 'Not here where server.metricsPort is set: then they are on a port of their own.',
  },
  own('/version', 'version', 'Version of the gateway', {
    200: { words: 'As the package has it.', content: json('Version', { version: '0.1.0' }) },
  }),
  own('/openapi.json', 'openapi', 'This document, as it is for this gateway', {
    200: {
      words: 'OpenAPI 3.1. Routes that the settings switch off are left out.',
      content: json({ type: 'object' }),
    },
  }),
]

const page = (path: string, id: string, summary: string, type: string): Operation => ({
  ...own(path, id, summary, {
    200: { words: 'The file.', content: { [type]: { schema: TEXT } }, headers: { ETag: 'Etag' } },
    304: { words: 'The client has it (If-None-Match).', headers: { ETag: 'Etag' } },
  }),
  tag: 'dashboard',
})

/** Not there where observe.dashboard is off. */
export const PAGE_OPERATIONS: readonly Operation[] = [
  page('/dashboard', 'dashboardPage', 'The dashboard', 'text/html'),
  page('/dashboard/app.js', 'dashboardScript', 'What the dashboard runs', 'text/javascript'),
  page('/dashboard/app.css', 'dashboardStyle', 'How the dashboard looks', 'text/css'),
  page('/dashboard/icon.svg', 'dashboardIcon', 'Its icon', 'image/svg+xml'),
  {
    ...own('/dashboard/', 'dashboardSlash', 'To the dashboard', {
      308: {
        words: 'It is at /dashboard.',
        content: { 'text/plain': { schema: TEXT } },
        headers: { Location: 'Location' },
      },
    }),
    tag: 'dashboard',
  },
]
