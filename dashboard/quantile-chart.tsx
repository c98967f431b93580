/** Best cosines of calibration and live requests over the share of requests, as two lines. */
import { useEffect, useRef } from 'preact/hooks'
import uPlot from 'uplot'
import type { FitHealth } from '../src/gateway/observe/insight/wire.ts'
import { css } from './colours.ts'
import { scheme } from './state.ts'

const HEIGHT = 290

export function QuantileChart({ quantiles }: { quantiles: FitHealth['quantiles'] }) {
  const box = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | undefined>(undefined)
  const colours = scheme.value
  useEffect(() => {
    const [ink, grid] = [css('muted'), css('grid')]
    const axis = {
      stroke: ink,
      grid: { stroke: grid, width: 1 },
      ticks: { show: false },
      font: '12px system-ui, sans-serif',
    }
    plot.current = new uPlot(
      {
        width: Math.max(200, box.current!.clientWidth),
        height: HEIGHT,
        legend: { show: false },
        cursor: { show: false },
        scales: {
          x: { time: false, range: [0, 1] },
          y: { range: (_, min) => [Math.max(0, Math.floor(min * 10) / 10), 1] },
        },
        axes: [
          { ...axis, size: 30, values: (_, splits) => splits.map(q => `${Math.round(100 * q)} %`) },
          { ...axis, size: 44, values: (_, splits) => splits.map(value => value.toFixed(2)) },
        ],
        series: [
          {},
          { stroke: ink, width: 2, dash: [6, 4], points: { show: false } },
          { stroke: css('accent'), width: 2.5, points: { show: false } },
        ],
      },
      [[], [], []],
      box.current!,
    )
    const element = box.current!
    const resize = new ResizeObserver(() =>
      plot.current?.setSize({ width: element.clientWidth, height: HEIGHT }),
    )
    resize.observe(element)
    return () => {
      resize.disconnect()
      plot.current!.destroy()
    }
  }, [colours])
  useEffect(() => {
    const pick = (key: 'calibration' | 'live') => quantiles.map(one => one[key] ?? null)
    plot.current!.setData([quantiles.map(({ q }) => q), pick('calibration'), pick('live')])
  }, [quantiles, colours])
  return (
    <figure class="card chart">
      <figcaption>
        Best cosine over the share of requests{' '}
        <span class="quiet">
          <i class="line dashed" aria-hidden="true" /> calibration <i class="line" aria-hidden="true" /> live
        </span>
      </figcaption>
      <div
        class="plot"
        ref={box}
        role="img"
        aria-label="Best cosine to a centroid, calibration and live requests; the table next to it has the values."
      />
    </figure>
  )
}
