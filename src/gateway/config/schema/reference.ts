/** docs/reference/config.md and docs/eldr-config.schema.json, made from the schema and the table of sources. */
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
    'Every value comes from the first of these that has it: a flag, an environment variable, the file, the default. `eldr config print` takes the same flags as `eldr serve` and shows each value and where it came from; `eldr config check FILE` lists all that is wrong with a file, with line and column.',
    '',
    `The file is YAML or JSON, named with \`${CONFIG.flag}\` or \`${CONFIG.env}\`. Paths in it are relative to the folder in which \`eldr\` runs. Times are in milliseconds where a name ends in \`Ms\`, in seconds where a flag ends in \`-secs\`. A list in a flag or a variable replaces that of the file.`,
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
    'Secrets are better in a file of their own (`--api-key-file`, `--admin-token-file`) or in the environment than in a configuration file. They are masked wherever settings are shown.',
    '',
    'Kubernetes puts `ELDR_PORT=tcp://…` into the environment of pods beside a service named `eldr`; that is passed over with a warning.',
    '',
    '| key | type | default | flag | environment | meaning |',
    '|---|---|---|---|---|---|',
    ...rows,
    '',
    '`--policy` and `--decode-policy` are the same; policies may be written with `_` or `-`. `--disable-retries` sets `retries.max` to 0, `--json-log` sets `observe.logFormat` to `json`. A switch takes `true`, `false`, `1` or `0` from the environment.',
    '',
    'This page and `eldr-config.schema.json` are made by `npm run docs` from `src/gateway/config/`.',
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
