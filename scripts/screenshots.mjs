// Takes the dashboard pictures for docs/: starts a cluster with load, changes its policy and takes
// screenshots. Needs Chromium (scripts/browser-tools.sh) and a build: npm run build && node
// scripts/screenshots.mjs [folder]
import { spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { rolldown } from 'rolldown'

const root = fileURLToPath(new URL('..', import.meta.url))
const folder = process.argv[2] ?? join(root, 'docs', 'pictures')
/** How long each policy runs, in slices of the charts (5 s). */
const SLICES = 9
const MAX_BYTES = 150_000

const DESK = { width: 1060, height: 800 }
const PICTURES = [
  { name: 'overview-light', view: 'overview', scheme: 'light', ...DESK, height: 1000 },
  { name: 'experts-light', view: 'experts', scheme: 'light', ...DESK },
  { name: 'decision-dark', view: 'decisions', scheme: 'dark', ...DESK, story: true },
  { name: 'signatures-dark', view: 'signatures', scheme: 'dark', width: 1000, height: 820 },
]

const work = mkdtempSync(join(tmpdir(), 'eldr-pictures-'))
const cluster = spawn(
  process.execPath,
  [join(root, 'dist', 'cli', 'main.js'), 'up', '--json', '--port', '0', '--load', '--policy', 'round_robin'],
  {
    cwd: work,
    stdio: ['ignore', 'pipe', 'inherit'],
  },
)
const browser = await chromium()
try {
  mkdirSync(folder, { recursive: true })
  const url = await ready()
  const first = await browser.open(`${url}/dashboard`, { ...DESK, scheme: 'light' })
  await until(first, slices('round_robin'), 120)
  await fetch(`${url}/eldr/policy`, { method: 'PUT', body: '{"policy":"eldr"}' })
  await until(first, slices('eldr'), 120)
  await first.close()
  for (const picture of PICTURES) await take(url, picture)
} finally {
  await browser.close()
  cluster.kill('SIGINT')
  await new Promise(resolve => cluster.once('exit', resolve))
  rmSync(work, { recursive: true, force: true })
}

/** Uses the tests' browser driver, which is TypeScript. */
async function chromium() {
  const bundle = await rolldown({ input: join(root, 'test', 'browser', 'chromium.ts'), platform: 'node' })
  const file = join(work, 'chromium.mjs')
  await bundle.write({ file, format: 'esm' })
  await bundle.close()
  return (await import(pathToFileURL(file).href)).launchChromium()
}

function ready() {
  return new Promise((resolve, reject) => {
    createInterface({ input: cluster.stdout }).on('line', line => {
      const said = JSON.parse(line)
      if (said.event === 'ready') resolve(said.url)
    })
    cluster.once('exit', code => reject(new Error(`the cluster exited with ${code}`)))
  })
}

/** True once a policy has been running for SLICES. */
function slices(policy) {
  return `(window.seen ??= {}, (window.seen[${JSON.stringify(policy)}] ??= performance.now()), document.querySelector('tr[data-policy="${policy}"]') && performance.now() - window.seen[${JSON.stringify(policy)}] > ${SLICES * 5_000})`
}

async function until(tab, expression, seconds = 30) {
  const held = await tab.evaluate(`new Promise(resolve => {
    const fromMs = performance.now()
    const look = () => (${expression}) ? resolve(true) : performance.now() - fromMs > ${seconds * 1000} ? resolve(false) : setTimeout(look, 100)
    look()
  })`)
  if (held !== true) throw new Error(`timed out after ${seconds} s waiting for ${expression}`)
}

async function take(url, { name, view, story, ...size }) {
  const tab = await browser.open(`${url}/dashboard#${view}`, size)
  const fromMs = Number(await tab.evaluate('performance.now()'))
  // 16 s of expert snapshots and live requests.
  await until(tab, `document.querySelector('main section') && performance.now() > ${fromMs + 16_000}`)
  if (story) {
    await tab.evaluate(`[...document.querySelectorAll('.decision')].at(-1).click()`)
    await until(tab, `document.querySelector('[data-fact=outcome]')?.textContent.startsWith('completed')`)
  }
  const file = join(folder, `${name}.png`)
  writeFileSync(file, await tab.picture('view'))
  const { size: bytes } = statSync(file)
  console.log(`${file}: ${Math.round(bytes / 1000)} KB`)
  if (bytes > MAX_BYTES) throw new Error(`${file} is larger than ${MAX_BYTES / 1000} KB`)
  if (tab.complaints.length > 0) throw new Error(tab.complaints.join('\n'))
  await tab.close()
}
