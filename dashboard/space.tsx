/**
 * The signature plane on a canvas: faint calibration requests, labelled centroids, and live requests that
 * move in.
 */
import { useEffect, useRef } from 'preact/hooks'
import type { PlaneView } from '../src/gateway/observe/insight/wire.ts'
import { css, workerGroup } from './colours.ts'
import { type Dot, LIFE_MS, liveDots } from './dots.ts'
import { WorkerName } from './parts.tsx'
import { decoderIds, decoders, reducedMotion, scheme } from './state.ts'

const COME_MS = 900
const PAD = 26

/** The decode worker of a cluster. */
function ownerOf(cluster: number): string | undefined {
  return decoders.peek().find(worker => worker.cluster === cluster)?.id
}

export function Space({ plane }: { plane: PlaneView }) {
  const canvas = useRef<HTMLCanvasElement>(null)
  const colours = scheme.value
  const ids = decoderIds.value
  useEffect(() => {
    const element = canvas.current!
    const still = drawStill(plane)
    let frame = 0
    const turn = () => {
      const box = element.parentElement!
      const [width, height] = [
        box.clientWidth,
        Math.round(Math.min(460, Math.max(280, box.clientWidth * 0.56))),
      ]
      const ratio = devicePixelRatio
      if (element.width !== Math.round(width * ratio) || element.height !== Math.round(height * ratio)) {
        element.width = Math.round(width * ratio)
        element.height = Math.round(height * ratio)
        element.style.height = `${height}px`
      }
      const context = element.getContext('2d')!
      context.setTransform(ratio, 0, 0, ratio, 0, 0)
      still(context, width, height)
      frame = requestAnimationFrame(turn)
    }
    turn()
    return () => cancelAnimationFrame(frame)
  }, [plane, colours, ids])
  return (
    <figure class="card space">
      <div>
        <canvas
          ref={canvas}
          role="img"
          aria-label={`${plane.points.length} calibration requests and ${plane.centroids.length} centroids in two dimensions; live requests appear among them, in the colour of the worker they went to.`}
        />
      </div>
      <figcaption>
        <ul class="legend">
          {ids.map(id => (
            <li key={id}>
              <WorkerName id={id} />
            </li>
          ))}
        </ul>
        <p class="quiet">
          Faint: calibration requests, in the colour of their cluster’s worker. Bright: live requests of the
          last 30 s, in the colour of the worker they went to. Axes: first and second principal component of
          the signatures.
        </p>
      </figcaption>
    </figure>
  )
}

function drawStill({ points, centroids }: PlaneView) {
  const [surface, ink, line, muted] = [css('surface'), css('ink'), css('grid'), css('muted')]
  const colour = new Map<string, string>()
  const colourOf = (worker: string | undefined) => {
    const group = worker === undefined ? 'muted' : workerGroup(worker)
    let found = colour.get(group)
    if (found === undefined) colour.set(group, (found = css(group) || muted))
    return found
  }
  const xs = points.map(([x]) => x)
  const ys = points.map(([, y]) => y)
  const [minX, maxX, minY, maxY] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)]
  return (context: CanvasRenderingContext2D, width: number, height: number) => {
    const place = (x: number, y: number): [number, number] => [
      PAD + ((x - minX) / (maxX - minX || 1)) * (width - 2 * PAD),
      height - PAD - ((y - minY) / (maxY - minY || 1)) * (height - 2 * PAD),
    ]
    context.fillStyle = surface
    context.fillRect(0, 0, width, height)
    context.strokeStyle = line
    context.lineWidth = 1
    const [zeroX, zeroY] = place(0, 0)
    context.beginPath()
    context.moveTo(zeroX, 0)
    context.lineTo(zeroX, height)
    context.moveTo(0, zeroY)
    context.lineTo(width, zeroY)
    context.stroke()
    context.globalAlpha = 0.26
    for (const [x, y, cluster] of points) {
      context.fillStyle = colourOf(ownerOf(cluster))
      disc(context, ...place(x, y), 2.6)
    }
    context.globalAlpha = 1
    const nowMs = performance.now()
    for (const dot of liveDots(nowMs))
      drawDot(context, dot, { nowMs, height, at: place(dot.x, dot.y), colour: colourOf(dot.worker) })
    context.font = '600 12px system-ui, sans-serif'
    context.textAlign = 'center'
    centroids.forEach(([x, y], cluster) => {
      const owner = ownerOf(cluster)
      const [px, py] = place(x, y)
      context.lineWidth = 2.5
      context.strokeStyle = ink
      context.fillStyle = colourOf(owner)
      context.beginPath()
      context.rect(px - 5, py - 5, 10, 10)
      context.fill()
      context.stroke()
      const label = owner ?? `cluster ${cluster}`
      context.lineWidth = 4
      context.strokeStyle = surface
      context.strokeText(label, px, py - 11)
      context.fillStyle = ink
      context.fillText(label, px, py - 11)
    })
  }
}

/** Moves in from below, with a ring that closes around the final position `at`; then fades. */
function drawDot(
  context: CanvasRenderingContext2D,
  { bornMs }: Dot,
  {
    nowMs,
    height,
    at: [px, py],
    colour,
  }: {
    readonly nowMs: number
    readonly height: number
    readonly at: readonly [number, number]
    readonly colour: string
  },
): void {
  const age = nowMs - bornMs
  const come = reducedMotion.peek() ? 1 : Math.min(1, age / COME_MS)
  const eased = 1 - (1 - come) ** 3
  const fade = Math.min(1, (LIFE_MS - age) / (LIFE_MS / 2))
  const y = py + (1 - eased) * (height - py) * 0.5
  context.fillStyle = context.strokeStyle = colour
  context.globalAlpha = fade * (0.25 + 0.75 * eased)
  disc(context, px, y, 4)
  if (come < 1) {
    context.globalAlpha = 0.5 * (1 - come)
    context.lineWidth = 1.5
    context.beginPath()
    context.arc(px, py, 4 + 14 * (1 - eased), 0, 2 * Math.PI)
    context.stroke()
  }
  context.globalAlpha = 1
}

function disc(context: CanvasRenderingContext2D, x: number, y: number, radius: number): void {
  context.beginPath()
  context.arc(x, y, radius, 0, 2 * Math.PI)
  context.fill()
}
