/** docs/openapi.json and docs/reference/api.md, made from the document. */
import { REFUSALS } from '../../http/refusal.ts'
import { openApiDocument, operationsOf, WHOLE } from './document.ts'
import { type Operation, TAGS } from './operation.ts'

export function documentText(): string {
  return `${JSON.stringify(openApiDocument(WHOLE))}\n`
}

const WHO = {
  client: 'API key',
  admin: 'admin token',
  watcher: 'admin token, or anybody with `observe.dashboard: open`',
  anybody: '',
}

export function apiPage(): string {
  const operations = operationsOf(WHOLE)
  return [
    '# The gateway’s API',
    '',
    'Every gateway serves its own description as OpenAPI 3.1 at `GET /openapi.json`: routes that its settings switch off are left out, and security is what it asks for. [openapi.json](../openapi.json) is that of a gateway with keys, an admin token and a dashboard. Clients can be generated from it; those of OpenAI work as they are.',
    '',
    'Every `GET` may be a `HEAD`. Another method is answered with 405 and `Allow`, another path with 404. Errors have OpenAI’s shape and a stable code ([errors.md](errors.md)); what a worker refuses with 4xx is passed on as it is. Any request may also be answered with 400, 408, 417 or 431 when it cannot be read, and with 500 when the gateway fails.',
    '',
    ...Object.entries(TAGS).flatMap(([tag, words]) => [
      `## ${words.replace(/\.$/, '')}`,
      '',
      '| request | what it is | answers | refusals | for |',
      '|---|---|---|---|---|',
      ...operations.filter(operation => operation.tag === tag).map(row),
      '',
    ]),
    'This page is made by `npm run docs` from `src/gateway/openapi/`.',
    '',
  ].join('\n')
}

function row({ method, path, id, summary, answers, refuses, access, passesRefusals }: Operation): string {
  const good = Object.entries(answers).map(([status, { content }]) => {
    const types = Object.keys(content ?? {}).filter(type => type !== 'application/json')
    return types.length === 0 ? status : `${status} (${types.join(', ')})`
  })
  const bad = [
    ...new Set(refuses.filter(code => code !== 'ELDR_UNAUTHORIZED').map(code => REFUSALS[code].status)),
  ].sort((a, b) => a - b)
  const statuses = [...bad.map(String), ...(passesRefusals === true ? ['a worker’s 4xx'] : [])]
  return `| \`${method.toUpperCase()} ${path}\` | ${summary} (\`${id}\`) | ${good.join(', ')} | ${statuses.join(', ')} | ${WHO[access]} |`
}
