/** Mean rank of live requests over the last hour, with the rank that a fitting artifact has. */
import type { DriftPoint } from '../src/gateway/observe/insight/wire.ts'
import { clock } from './words.ts'

const [WIDTH, HEIGHT, LEFT, BOTTOM] = [640, 170, 34, 22]
/** Points further apart than this are not joined: there were no requests between them. */
const GAP_MS = 45_000
const MIN_SPAN_MS = 300_000

export function DriftChart({ points, sinceMs }: { points: readonly DriftPoint[]; sinceMs?: number }) {
  const toMs = Math.max(...points.map(({ fromMs }) => fromMs))
  const fromMs = Math.min(toMs - MIN_SPAN_MS, ...points.map(point => point.fromMs))
  const x = (ms: number) => LEFT + ((ms - fromMs) / (toMs - fromMs)) * (WIDTH - LEFT - 8)
  const y = (rank: number) => 8 + (1 - rank) * (HEIGHT - BOTTOM - 8)
  const path = points
    .map(({ fromMs: at, meanRank }, n) => {
      const joined = n > 0 && at - points[n - 1]!.fromMs <= GAP_MS
      // A line of no length shows a point that stands alone.
      return `${joined ? 'L' : 'M'}${x(at).toFixed(1)} ${y(meanRank).toFixed(1)}${joined ? '' : 'h0.1'}`
    })
    .join('')
  const last = points.at(-1)!
  return (
    <figure class="card chart">
      <figcaption>Mean rank of live requests among the calibration requests</figcaption>
      <svg
        class="drift"
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        role="img"
        aria-label={`Mean rank over time, ${last.meanRank.toFixed(2)} at ${clock(last.fromMs)}; 0.5 if the artifact fits.`}
      >
        {[0, 0.5, 1].map(rank => (
          <g key={rank}>
            <line class={rank === 0.5 ? 'fits' : 'grid'} x1={LEFT} x2={WIDTH - 8} y1={y(rank)} y2={y(rank)} />
            <text x={LEFT - 6} y={y(rank) + 4} text-anchor="end">
              {rank}
            </text>
          </g>
        ))}
        {sinceMs !== undefined && sinceMs >= fromMs && (
          <line class="since" x1={x(sinceMs)} x2={x(sinceMs)} y1={y(1)} y2={y(0)} />
        )}
        <path d={path} />
        <text x={LEFT} y={HEIGHT - 4}>
          {clock(fromMs)}
        </text>
        <text x={WIDTH - 8} y={HEIGHT - 4} text-anchor="end">
          {clock(toMs)}
        </text>
      </svg>
    </figure>
  )
}
