// Writes the generated pages under docs/, from the code and from saved results. A test fails when one of them
// is stale.
import { readFileSync, writeFileSync } from 'node:fs'
import { cliPage } from '../dist/cli/cli-page.js'
import { createProgram } from '../dist/cli/run.js'
import { metricsPage } from '../dist/gateway/observe/metrics/metrics-page.js'
import { REFUSALS } from '../dist/gateway/http/refusal.js'
import { configPage, schemaText } from '../dist/gateway/config/schema/reference.js'
import { apiPage, documentText } from '../dist/gateway/control/openapi/api-page.js'
import { resultsData, resultsPage } from '../dist/paper/results-page.js'
import { adaptPage } from '../dist/report/adapt-page.js'
import { harmPage } from '../dist/report/harm-page.js'
import { experimentPage } from '../dist/report/experiment-page.js'
import { conversationsPage } from '../dist/report/conversations-page.js'
import { driftPage } from '../dist/report/drift-page.js'
import { errorsPage } from '../dist/report/errors-page.js'
import { gpuPage } from '../dist/served/gpu-page.js'
import { readEvidence } from '../dist/served/read-evidence.js'
import { resultText, writeCompressed } from '../dist/report/result-text.js'
import { STEP_FIGURE, stepFigure } from '../dist/served/step-section.js'
import { fillScalePage } from '../dist/report/scale-page.js'

const docs = name => new URL(`../docs/${name}`, import.meta.url)
const gpu = await readEvidence(new URL('../bench/gpu/serving/results/', import.meta.url))
const gpuFigure = stepFigure(gpu.results)
const saved = async file => JSON.parse(await resultText(docs(`evidence/results/${file}`)))
const [whole, cut] = [await saved('whole.json.br'), await saved('cut.json.br')]

for (const [name, text] of [
  ['reference/cli.md', cliPage(createProgram())],
  ['reference/errors.md', errorsPage(REFUSALS)],
  ['reference/config.md', configPage()],
  ['eldr-config.schema.json', schemaText()],
  ['reference/metrics.md', metricsPage()],
  ['reference/api.md', apiPage()],
  ['openapi.json', documentText()],
  ['evidence/results.md', resultsPage(whole, cut)],
  ...resultsData(whole, cut).map(({ path, text }) => [`evidence/${path}`, text]),
  ['evidence/gpu.md', gpuPage(gpu)],
  [
    'evidence/harm.md',
    harmPage(await saved('harm.json'), await saved('harm-live.json'), await saved('tau-harm.json')),
  ],
  [
    'evidence/drift.md',
    driftPage(await saved('drift.json'), await saved('drift-small.json'), await saved('step-cost.json')),
  ],
  [
    'evidence/experiment.md',
    experimentPage({
      figures: await saved('experiment.json'),
      judged: await saved('experiment-verdicts.json'),
      live: await saved('experiment-live.json'),
      shadow: await saved('shadow.json'),
    }),
  ],
  [
    'evidence/conversations.md',
    conversationsPage(await saved('conversations.json'), await saved('conversations-live.json')),
  ],
  ['evidence/adapt.md', adaptPage(await saved('adapt.json'), await saved('adapt-live.json'))],
  ...(gpuFigure === undefined ? [] : [[`pictures/${STEP_FIGURE}`, gpuFigure]]),
  [
    'guides/scale.md',
    fillScalePage(readFileSync(docs('guides/scale.md'), 'utf8'), await saved('scale.json.gz')),
  ],
])
  if (name.endsWith('.gz')) await writeCompressed(docs(name), text)
  else writeFileSync(docs(name), text)
