/**
 * Generates docs/reference/config.md and docs/eldr-config.schema.json from the schema and the table of flags.
 */
import { allKeys, jsonSchema, type SchemaNode, typeText } from './json-schema.ts'
import { CONFIG, longNameOf, SOURCES } from '../flags/sources.ts'

export function schemaText(): string {
  return `${JSON.stringify(jsonSchema(), null, 2)}\n`
}

export function configPage(): string {
  const rows = allKeys()
    .filter(({ node }) => node.properties === undefined)
    .map(({ name, node }) => row(name, node))
  return [
    '# Configuration of `eldr serve`',
    '',
    'Precedence: flag, environment variable, file, default. `eldr config print` takes the same flags as `eldr serve` and prints each value with its origin. `eldr config check FILE` lists all problems of a file with line and column.',
    '',
    `\`${CONFIG.flag}\` or \`${CONFIG.env}\` names the file, which is YAML or JSON. Paths in it are relative to the working directory of \`eldr\`. Keys that end in \`Ms\` are in milliseconds, flags that end in \`-secs\` in seconds. A list in a flag or a variable replaces the list of the file.`,
    '',
    '```yaml',
    '# yaml-language-server: $schema=./node_modules/eldr/docs/eldr-config.schema.json',
    'server:',
    '  host: 0.0.0.0',
    'workers:',
    '  prefill: [http://10.0.0.1:8000, http://10.0.0.2:8000]',
    '  decode:',
    '    - http://10.0.1.1:8000',
    '    - { url: http://10.0.1.2:8000, id: decode-b }',
    'routing:',
    '  artifact: task.artifact.safetensors',
    '```',
    '',
    'Keep secrets in separate files (`--api-key-file`, `--admin-token-file`) or in the environment, not in the configuration file. They are masked wherever settings are shown.',
    '',
    'If there is a Kubernetes service named `eldr`, Kubernetes sets `ELDR_PORT=tcp://…` in pods of its namespace. The gateway ignores it with a warning.',
    '',
    '| key | type | default | flag | environment | meaning |',
    '|---|---|---|---|---|---|',
    ...rows,
    '',
    '`--policy` and `--decode-policy` are the same; policies may be written with `_` or `-`. `--disable-retries` sets `retries.max` to 0, `--json-log` sets `observe.logFormat` to `json`. A switch takes `true`, `false`, `1` or `0` from the environment.',
    '',
    '`npm run docs` generates this page and `eldr-config.schema.json` from `src/gateway/config/`.',
    '',
  ].join('\n')
}

function row(name: string, node: SchemaNode): string {
  const sources = SOURCES.filter(source => source.name === name)
  const flags = sources.flatMap(({ flag }) => (flag === undefined ? [] : [longNameOf(flag)]))
  const cells = [
    code(name),
    node.type === 'array'
      ? 'list'
      : typeText(node)
          .replace(/^an? /, '')
          .replace(/^one of /, ''),
    node.default === undefined ? '' : code(JSON.stringify(node.default)),
    flags.map(code).join(', '),
    sources.map(({ env }) => code(env)).join(', '),
    node.description ?? '',
  ]
  return `| ${cells.map(cell => cell.replaceAll('|', '\\|')).join(' | ')} |`
}

const code = (text: string) => `\`${text}\``
