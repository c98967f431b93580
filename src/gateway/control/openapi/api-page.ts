/** Generates docs/openapi.json and docs/reference/api.md. */
import { REFUSALS } from '../../http/refusal.ts'
import { openApiDocument, operationsOf, WHOLE } from './document.ts'
import { type Operation, TAGS } from './operation.ts'

export function documentText(): string {
  return `${JSON.stringify(openApiDocument(WHOLE))}\n`
}

const ACCESS_TEXT = {
  client: 'API key',
  admin: 'admin token',
  viewer: 'admin token; none with `observe.dashboard: open`',
  public: '',
}

export function apiPage(): string {
  const operations = operationsOf(WHOLE)
  return [
    '# The gateway’s API',
    '',
    'Every gateway serves its own OpenAPI 3.1 document at `GET /openapi.json`, without routes that its settings disable and with the authentication it requires. [openapi.json](../openapi.json) describes a gateway with API keys, an admin token and the dashboard. You can generate clients from it; OpenAI clients work unchanged.',
    '',
    'Every `GET` route also supports `HEAD`. Other methods get 405 with `Allow`, unknown paths 404. Errors have OpenAI’s format and a stable code ([errors.md](errors.md)). A 4xx response of a worker is passed on unchanged. Any request may also get 400, 408, 417 or 431 if it cannot be read, and 500 on an internal error.',
    '',
    ...Object.entries(TAGS).flatMap(([tag, words]) => [
      `## ${words.replace(/\.$/, '')}`,
      '',
      '| request | purpose | responses | errors | authentication |',
      '|---|---|---|---|---|',
      ...operations.filter(operation => operation.tag === tag).map(row),
      '',
    ]),
    '`npm run docs` generates this page from `src/gateway/control/openapi/`.',
    '',
  ].join('\n')
}

function row({ method, path, id, summary, responses, refuses, access, passesRefusals }: Operation): string {
  const good = Object.entries(responses).map(([status, { content }]) => {
    const types = Object.keys(content ?? {}).filter(type => type !== 'application/json')
    return types.length === 0 ? status : `${status} (${types.join(', ')})`
  })
  const bad = [
    ...new Set(refuses.filter(code => code !== 'ELDR_UNAUTHORIZED').map(code => REFUSALS[code].status)),
  ].sort((a, b) => a - b)
  const statuses = [...bad.map(String), ...(passesRefusals === true ? ['a worker’s 4xx'] : [])]
  return `| \`${method.toUpperCase()} ${path}\` | ${summary} (\`${id}\`) | ${good.join(', ')} | ${statuses.join(', ')} | ${ACCESS_TEXT[access]} |`
}
