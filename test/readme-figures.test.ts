/** Figures that README.md and hand-written pages quote, tied to the committed results. */
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { signed } from '../src/served/capture-numbers.ts'
import { readEvidence } from '../src/served/read-evidence.ts'
import type { ResultOf } from '../src/served/result-file.ts'
import { fixed } from '../src/report/numbers.ts'
import { resultText } from '../src/report/result-text.ts'

const root = new URL('../', import.meta.url)
const textOf = (name: string) => readFileSync(new URL(name, root), 'utf8')
const readme = textOf('README.md')
const { results } = await readEvidence(new URL('bench/gpu/serving/results/', root))

/** Means of the whole traces in a CSV of docs/evidence/results, by table, row and column. */
function meanIn(file: string): (part: string, row: string, column: string) => number {
  const lines = textOf(`docs/evidence/results/${file}`).split('\n')
  return (part, row, column) => {
    const line = lines.find(
      one => one.startsWith('whole,') && one.includes(part) && one.includes(`,${row},${column},`),
    )
    return Number(line!.split(`,${row},${column},`)[1]!.split(',')[0])
  }
}

describe('README.md', () => {
  it('has the simulation with the steps of a served engine as its first table', () => {
    const mean = meanIn('measured-profile.csv')
    const cell = (mix: string, policy: string, batch: number) =>
      ['p50', 'p99'].map(name => signed(mean(`${mix} mix`, policy, `${name} at ${batch}`), 1)).join(' / ')
    const rows = [10, 20, 35, 45].map(batch => {
      const cells = ['task', 'language'].flatMap(mix =>
        ['band', 'union'].map(policy => cell(mix, policy, batch)),
      )
      return `| ${[batch, ...cells].join(' | ')} |`
    })
    expect(readme).toContain(['|---|---:|---:|---:|---:|', ...rows].join('\n'))
    expect(readme.indexOf(rows[0]!)).toBe(readme.indexOf('| 10 |'))
  })

  it('has the capacity that was planned with the same steps', () => {
    const saved = JSON.parse(textOf('docs/evidence/results/capacity-served.json')) as {
      profile: string
      rows: { policies: { policy: string; gain: number | null; fewestDecoders: number }[] }[]
    }
    expect(saved.profile).toBe('h200-served-qwen3-30b-a3b')
    const [task, lang] = saved.rows.map(row => row.policies.find(({ policy }) => policy === 'union')!)
    const percent = ({ gain }: { gain: number | null }) => fixed(100 * gain!, 0)
    expect(readme).toContain(
      `\`union\` serves ${percent(task!)} to ${percent(lang!)} % more requests per second, or the same rate with ${task!.fewestDecoders} or ${lang!.fewestDecoders} decode workers instead of 16`,
    )
  })

  it('has the figures of the default profile', async () => {
    const figures = await Promise.all(
      [11, 12].map(figure => resultText(new URL(`docs/evidence/results/fig-${figure}.csv.gz`, root))),
    )
    const medians = figures
      .flatMap(text => [...text.matchAll(/^whole,.*,union,p50 at \d+,([-\d.]+),/gm)])
      .map(([, value]) => -Number(value))
    expect(medians.length).toBe(8)
    expect(readme).toContain(
      `\`union\` gains ${fixed(Math.min(...medians), 1)} to ${fixed(Math.max(...medians), 1)} % at the median`,
    )
    const gains = ['task', 'lang'].map(mix => meanIn('capacity.csv')('', `"${mix}, union"`, 'against jsq'))
    expect(readme).toContain(`and ${gains.map(gain => fixed(gain, 0)).join(' to ')} % in requests per second`)
  })

  it('has the number of texts that are equal over NIXL', () => {
    const [pd] = results
      .filter((result): result is ResultOf<'capture-exact'> => result.kind === 'capture-exact')
      .flatMap(({ captureExact }) => captureExact.pd ?? [])
    expect(readme).toContain(`equal those of one server in ${pd!.equalTexts} of ${pd!.prompts}`)
  })
})

describe('the cost of capture', () => {
  const costs = results.filter((result): result is ResultOf<'capture-cost'> => result.kind === 'capture-cost')
  const lengths = [128, 512, 2048] as const
  /** Capture switched in one server. */
  const added = (layers: number, promptTokens: number) =>
    costs
      .filter(({ model }) => model.layers === layers)
      .flatMap(({ captureCost }) => captureCost.cells)
      .find(cell => cell.switched && cell.promptTokens === promptTokens)!.addedMs.median
  const ms = (layers: number) => lengths.map(tokens => fixed(added(layers, tokens).median, 2))
  const worst = added(48, 2048)
  const slower = costs
    .flatMap(({ captureCost }) => captureCost.throughput ?? [])
    .map(one => fixed(100 * (1 - one.withPerSecond / one.withoutPerSecond), 0))
  const listed = ([first, second, third]: readonly string[]) => `${first}, ${second} and ${third} ms`

  it.each(['README.md', 'docs/guides/vllm.md'])('is that of the results in %s', page => {
    const text = textOf(page)
    expect(text).toContain(`${listed(ms(6))} to a prefill leg of 128, 512 and 2,048 tokens`)
    expect(text).toContain(`${listed(ms(48))} with 48 × 128`)
    expect(text).toContain(`${signed(worst.low, 2)} to ${signed(worst.high, 2)}`)
    expect(text).toContain(`${slower.join(' and ')} % fewer`)
  })

  it('is that of the results in docs/evidence/vllm-capture.md', () => {
    const text = textOf('docs/evidence/vllm-capture.md')
    const interval = (layers: number, tokens: number) => {
      const { low, high } = added(layers, tokens)
      return `${fixed(low, 2)} to ${fixed(high, 2)}`
    }
    const [short, middle, long] = ms(6)
    expect(text).toContain(
      `adds ${long} ms to a prefill leg of 2,048 tokens (95 % interval ${interval(6, 2048)};`,
    )
    expect(text).toContain(`${middle} ms at 512 and ${short} ms at 128`)
    const [papersShort, papersMiddle, papersLong] = ms(48)
    expect(text).toContain(`it adds ${papersShort} ms at 128 tokens (${interval(48, 128)};`)
    expect(text).toContain(`${papersMiddle} at 512 (${interval(48, 512)})`)
    expect(text).toContain(`it adds ${papersLong} ms (${interval(48, 2048)})`)
    expect(text).toContain(`${slower.join(' and ')} % fewer requests per second`)
  })

  it.each(['README.md', 'docs/guides/vllm.md', 'docs/evidence/vllm-capture.md'])(
    'in plain torch is that of the timed parts in %s',
    page => {
      const { rows } = JSON.parse(textOf('python/bench/results/h200-capture-parts.json')) as {
        rows: Record<string, unknown>[]
      }
      const shape = { layers: 48, experts: 128, size: 16, half_life: 64, how: 'kernels', tokens: 2048 }
      const deviceMs = (wanted: object) =>
        Number(
          rows.find(row =>
            Object.entries({ ...shape, ...wanted }).every(([key, value]) => row[key] === value),
          )!['device_ms'],
        )
      const total = deviceMs({ what: 'record', mode: 'eager' }) + deviceMs({ what: 'sums', ends: 1 })
      expect(textOf(page)).toContain(fixed(total, 3))
    },
  )
})
