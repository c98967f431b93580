/**
 * Lines over time per policy: the median solid, the 95th percentile thin and dashed. A table next to it has
 * the values.
 */
import { useSignalEffect } from '@preact/signals'
import { useEffect, useRef } from 'preact/hooks'
import uPlot from 'uplot'
import type { PacePoint } from '../src/gateway/observe/insight/wire.ts'
import { css, policyGroup } from './colours.ts'
import { pace, pulse, scheme, sliceMs } from './state.ts'
import { clock, time } from './words.ts'

type Measure = 'ttft' | 'tpot'

const HEIGHT = 190
/** The maximum is what the gateway keeps. */
const MIN_SPAN_S = 120
const MAX_SPAN_S = 900

export function policiesIn(points: readonly PacePoint[]): string[] {
  return [...new Set(points.map(({ policy }) => policy))].sort()
}

export function TimeChart({ measure, label }: { measure: Measure; label: string }) {
  const box = useRef<HTMLDivElement>(null)
  const readout = useRef<HTMLSpanElement>(null)
  const chart = useRef<{ plot: uPlot; key: string } | undefined>(undefined)

  useSignalEffect(() => {
    const points = pace.value
    const policies = policiesIn(points)
    const key = `${policies.join()} ${scheme.value}`
    const { data, fromS, toS } = dataOf(
      points,
      policies,
      measure,
      pulse.value?.atMs ?? Date.now(),
      sliceMs.value,
    )
    if (chart.current?.key !== key) {
      chart.current?.plot.destroy()
      chart.current = { plot: create(box.current!, policies, readout.current!), key }
    }
    const { plot } = chart.current
    plot.batch(() => {
      plot.setData(data, false)
      plot.setScale('x', { min: fromS, max: toS })
    })
  })
  useEffect(() => {
    const element = box.current!
    const resize = new ResizeObserver(() =>
      chart.current?.plot.setSize({ width: element.clientWidth, height: HEIGHT }),
    )
    resize.observe(element)
    return () => {
      resize.disconnect()
      chart.current?.plot.destroy()
      chart.current = undefined
    }
  }, [])
  return (
    <figure class="card chart">
      <figcaption>
        {label} <span class="readout" ref={readout} aria-hidden="true" />
      </figcaption>
      <div
        class="plot"
        ref={box}
        role="img"
        aria-label={`${label}, over time by policy; the table below has the last values.`}
      />
    </figure>
  )
}

function create(box: HTMLElement, policies: readonly string[], readout: HTMLElement): uPlot {
  const [ink, grid] = [css('muted'), css('grid')]
  const axis = {
    stroke: ink,
    grid: { stroke: grid, width: 1 },
    ticks: { show: false },
    font: '12px system-ui, sans-serif',
  }
  const lines = policies.flatMap(policy => {
    const stroke = css(policyGroup(policy))
    const common = { stroke, spanGaps: false, points: { show: false } }
    return [
      { label: `${policy}, median`, width: 2, ...common },
      { label: `${policy}, 95th percentile`, width: 1, dash: [4, 4], ...common },
    ]
  })
  const options: uPlot.Options = {
    width: Math.max(200, box.clientWidth),
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
    scales: { x: { time: true, auto: false }, y: { range: (_, __, max) => [0, Math.max(1, max * 1.1)] } },
    axes: [
      { ...axis, size: 30, space: 90, values: (_, splits) => splits.map(s => clock(s * 1000)) },
      { ...axis, size: 62, values: (_, splits) => splits.map(ms => time(ms)) },
    ],
    series: [{}, ...lines],
    hooks: {
      setCursor: [
        plot => {
          const at = plot.cursor.idx
          const shown =
            at === null || at === undefined
              ? []
              : plot.series
                  .slice(1)
                  .flatMap((line, s) =>
                    plot.data[s + 1]![at] == null
                      ? []
                      : [`${String(line.label)} ${time(plot.data[s + 1]![at]!)}`],
                  )
          readout.textContent =
            shown.length === 0 ? '' : `${clock(plot.data[0][at!]! * 1000)}: ${shown.join(', ')}`
        },
      ],
    },
  }
  return new uPlot(options, [[], ...lines.map(() => [])] as unknown as uPlot.AlignedData, box)
}

/**
 * One row of times, and per policy the median and the 95th percentile at these times; gaps while a policy was
 * not active.
 */
function dataOf(
  points: readonly PacePoint[],
  policies: readonly string[],
  measure: Measure,
  nowMs: number,
  slice: number,
) {
  const moments = [...new Set(points.map(({ fromMs }) => fromMs))].sort((a, b) => a - b)
  // Break the line where there were no data for a while.
  const all = moments.flatMap((moment, at) =>
    at > 0 && moment - moments[at - 1]! > 2 * slice ? [moments[at - 1]! + slice, moment] : [moment],
  )
  const place = new Map(all.map((moment, at) => [moment, at]))
  const empty = () => Array.from<null, number | null>({ length: all.length }, () => null)
  const rows = policies.flatMap(() => [empty(), empty()])
  for (const point of points) {
    const spread = point[measure]
    if (spread === undefined) continue
    const [row, at] = [2 * policies.indexOf(point.policy), place.get(point.fromMs)!]
    rows[row]![at] = spread.p50
    rows[row + 1]![at] = spread.p95
  }
  const toS = nowMs / 1000
  const spanS = Math.min(MAX_SPAN_S, Math.max(MIN_SPAN_S, toS - (all[0] ?? nowMs) / 1000))
  return { data: [all.map(ms => ms / 1000), ...rows] as uPlot.AlignedData, fromS: toS - spanS, toS }
}
