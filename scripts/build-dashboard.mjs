// Builds the dashboard: one script and one style sheet without external resources. Colours are those of the
// reports.
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { rolldown } from 'rolldown'

const source = fileURLToPath(new URL('../dashboard/', import.meta.url))

/** `dist` contains the compiled sources. */
export async function buildDashboard(dist) {
  const folder = join(dist, 'dashboard')
  mkdirSync(folder, { recursive: true })
  const bundle = await rolldown({
    input: join(source, 'main.tsx'),
    platform: 'browser',
    tsconfig: join(source, 'tsconfig.json'),
    transform: { target: 'es2022', define: { POLICIES_WITH_TAU: await policiesWithTau(dist) } },
  })
  await bundle.write({
    file: join(folder, 'app.js'),
    format: 'esm',
    minify: true,
    comments: { legal: true, annotation: false, jsdoc: false },
  })
  await bundle.close()
  const charts = readFileSync(createRequire(import.meta.url).resolve('uplot/dist/uPlot.min.css'), 'utf8')
  writeFileSync(
    join(folder, 'app.css'),
    `${await themes(dist)}${charts}${minified(readFileSync(join(source, 'style.css'), 'utf8'))}`,
  )
  writeFileSync(join(folder, 'LICENCES.txt'), licences())
  for (const file of ['index.html', 'icon.svg']) copyFileSync(join(source, file), join(folder, file))
}

/** Licences of the bundled packages, which require it. */
function licences() {
  const text = name => readFileSync(new URL(`../node_modules/${name}/LICENSE`, import.meta.url), 'utf8')
  return ['preact', '@preact/signals', '@preact/signals-core', 'uplot']
    .map(name => `${name}\n\n${text(name)}`)
    .join('\n\n')
}

/** The page shows τ for the policies that use it. */
async function policiesWithTau(dist) {
  const { DECODE_POLICIES } = await import(pathToFileURL(join(dist, 'policy', 'decode-policy.js')).href)
  return JSON.stringify(DECODE_POLICIES.filter(({ setting }) => setting === 'tau').map(({ name }) => name))
}

/** Colours that the reports do not have: edges of controls, empty cells, and “good”. */
const MORE = {
  light: '--edge:#838c99;--heat-none:#eef1f5;--good:#1a7349',
  dark: '--edge:#6d7786;--heat-none:#1f252d;--good:#5cc98d',
}

async function themes(dist) {
  const { COLOURS, DARK, LIGHT, themeProperties } = await import(
    pathToFileURL(join(dist, 'report', 'palette.js')).href
  )
  const groups = Array.from(
    { length: COLOURS },
    (_, group) => `.group-${group}{--c:var(--group-${group})}`,
  ).join('')
  return `:root{color-scheme:light;${MORE.light};${themeProperties(LIGHT)}}
@media (prefers-color-scheme:dark){:root{color-scheme:dark;${MORE.dark};${themeProperties(DARK)}}}
${groups}.muted{--c:var(--muted)}
`
}

/** Strips comments and line breaks. */
function minified(css) {
  return css.replaceAll(/\/\*[^]*?\*\//g, '').replaceAll(/\s*\n\s*/g, '')
}
