/** One worker's experts on a canvas: one pixel per cell, scaled up by the browser. */
import { useEffect, useRef } from 'preact/hooks'
import { rgb } from './colours.ts'
import { WorkerName } from './parts.tsx'
import { scheme } from './state.ts'

interface Cell {
  readonly layer: number
  readonly expert: number
}

interface Props {
  readonly worker: string
  readonly layers: number
  readonly experts: number
  readonly cells: Float32Array
  /** Values from −1 to 1; 0 has no colour. */
  readonly diverging: boolean
  readonly label: string
  readonly cursor: Cell | undefined
  onCursor(cell: Cell | undefined): void
}

export function HeatMap({ worker, layers, experts, cells, diverging, label, cursor, onCursor }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null)
  const colours = scheme.value
  useEffect(
    () => draw(canvas.current!, layers, experts, cells, diverging),
    [cells, diverging, colours, layers, experts],
  )

  function point(event: PointerEvent): void {
    const box = canvas.current!.getBoundingClientRect()
    const within = (share: number, size: number) => Math.min(size - 1, Math.max(0, Math.floor(share * size)))
    onCursor({
      layer: within((event.clientY - box.top) / box.height, layers),
      expert: within((event.clientX - box.left) / box.width, experts),
    })
  }
  function move(event: KeyboardEvent): void {
    const step = STEPS[event.key]
    if (step === undefined) return
    event.preventDefault()
    const { layer, expert } = cursor ?? { layer: 0, expert: -1 }
    onCursor({ layer: (layer + step[0] + layers) % layers, expert: (expert + step[1] + experts) % experts })
  }
  return (
    <figure class="card map" data-worker={worker}>
      <figcaption>
        <WorkerName id={worker} /> <span class="quiet">{label}</span>
      </figcaption>
      <div class="axes">
        <span class="ylabel" aria-hidden="true">
          <span>{layers - 1}</span>
          <span>layer 0</span>
        </span>
        <div
          class="cells"
          tabIndex={0}
          role="img"
          aria-label={`Experts of ${worker}: ${label}. Arrow keys read single cells.`}
          onKeyDown={move}
          onPointerMove={point}
          onPointerLeave={() => onCursor(undefined)}
        >
          <canvas
            ref={canvas}
            width={experts}
            height={layers}
            style={{ aspectRatio: `${experts} / ${Math.max(layers * 2, experts / 5)}` }}
          />
          {cursor !== undefined && (
            <i
              class="cursor"
              style={{
                left: `${(100 * cursor.expert) / experts}%`,
                top: `${(100 * cursor.layer) / layers}%`,
                width: `${100 / experts}%`,
                height: `${100 / layers}%`,
              }}
            />
          )}
        </div>
        <span class="ends" aria-hidden="true">
          <span>expert 0</span>
          <span>{experts - 1}</span>
        </span>
      </div>
    </figure>
  )
}

const STEPS: Readonly<Record<string, readonly [number, number]>> = {
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
}

function draw(
  canvas: HTMLCanvasElement,
  layers: number,
  experts: number,
  cells: Float32Array,
  diverging: boolean,
): void {
  const context = canvas.getContext('2d')!
  const image = context.createImageData(experts, layers)
  const [none, full, less] = [rgb('heat-none'), rgb('heat'), rgb('star')]
  for (let cell = 0; cell < cells.length; cell++) {
    const value = cells[cell]!
    const to = value < 0 ? less : full
    // Differences are mostly small: amplify them to make them visible.
    const share = Math.min(1, diverging ? Math.abs(value) * 1.3 : value)
    for (let part = 0; part < 3; part++)
      image.data[4 * cell + part] = none[part]! + (to[part]! - none[part]!) * share
    image.data[4 * cell + 3] = 255
  }
  context.putImageData(image, 0, 0)
}
