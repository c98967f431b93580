// Writes the table of values into the chart's README from the comments and defaults of values.yaml. A test
// fails if it is stale.
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parse } from 'yaml'

const MARK = '<!-- values: made by scripts/chart-docs.mjs -->'
const chart = name => new URL(`../deploy/helm/eldr/${name}`, import.meta.url)

/** All keys with a comment `# -- …` above them: path, default and comment. */
export function documentedValues(text) {
  const defaults = parse(text)
  const found = []
  const path = []
  let meaning
  for (const line of text.split('\n')) {
    meaning = /^ *# -- (.*)$/.exec(line)?.[1] ?? meaning
    const key = /^( *)([\w.]+):/.exec(line)
    if (key === null) continue
    path.splice(key[1].length / 2, Infinity, key[2])
    if (meaning !== undefined)
      found.push({ key: path.join('.'), value: path.reduce((value, name) => value[name], defaults), meaning })
    meaning = undefined
  }
  return found
}

export function readmeWith(readme, valuesText) {
  const rows = documentedValues(valuesText).map(
    ({ key, value, meaning }) => `| \`${key}\` | \`${JSON.stringify(value)}\` | ${meaning} |`,
  )
  return [
    readme.slice(0, readme.indexOf(MARK) + MARK.length),
    '',
    '| value | default | meaning |',
    '|---|---|---|',
    ...rows,
    '',
  ].join('\n')
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(
    chart('README.md'),
    readmeWith(readFileSync(chart('README.md'), 'utf8'), readFileSync(chart('values.yaml'), 'utf8')),
  )
}
