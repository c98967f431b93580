import type { Artifact, FittedSignature } from '../fit/artifact.ts'
import type { PlacementFile } from '../fit/placement-file.ts'
import { clusterSummaries, placementSummary } from '../fit/summarise.ts'
import type { TensorInfo } from '../trace/safetensors-header.ts'
import type { Trace, TracePurpose } from '../trace/trace.ts'
import type { Spread, TraceStats } from '../trace/trace-stats.ts'
import { clusterTable, placementTable } from './fit-tables.ts'
import { sparkline, table } from './table.ts'
import { clipped, whole } from './numbers.ts'
import { bytes, columnsOf, printable, type Terminal, wrapped } from './terminal.ts'

/** The description of one file, as text and as JSON. */
export interface View {
  readonly json: object
  text(terminal: Terminal): string
}

const PURPOSES: Readonly<Record<TracePurpose, string>> = {
  signatures: 'make signatures',
  quality: 'measure their quality ρ, choose layers, place experts',
  gate: 'compare with gate scores',
  recent: 'make signatures of recent counts',
  replay: 'replay decode steps in a simulation',
}

export function traceView(trace: Trace, stats: TraceStats, size: number): View {
  const allows = (Object.keys(PURPOSES) as TracePurpose[]).map(purpose => ({
    purpose,
    missing: trace.missingFor(purpose),
  }))
  const tensors = [...trace.tensors.values()]
  const {
    model,
    layers,
    experts,
    topK,
    requests,
    workload,
    split,
    domains,
    recentHalfLife,
    gateRows,
    ignored,
  } = trace
  const shape = { model, workload, split, requests, layers, experts, topK, recentHalfLife, gateRows }
  return {
    json: {
      kind: 'trace',
      file: trace.path,
      bytes: size,
      ...shape,
      ...stats,
      domains: domains.map((name, at) => ({ name, requests: stats.domains[at] ?? 0 })),
      allows,
      ignored,
      tensors: tensorsJson(tensors),
    },
    text: terminal =>
      [
        heading('Trace', trace.path, size, terminal),
        facts(
          [
            ['model', `${printable(model)}, ${layers} MoE layers × ${experts} experts, top-${topK}`],
            [
              'requests',
              `${whole(requests)}${workload === undefined ? '' : `, workload ${printable(workload)}`}${split === undefined ? '' : `, ${printable(split)} split`}`,
            ],
            ...(stats.domains.length > 0
              ? [
                  [
                    'domains',
                    domains.map((name, at) => `${printable(name)} ${stats.domains[at]}`).join(', '),
                  ] as const,
                ]
              : []),
            ...(stats.promptTokens ? [['prompt', `${spreadText(stats.promptTokens)} tokens`] as const] : []),
            ...(stats.decodeSteps ? [['decode', `${spreadText(stats.decodeSteps)} steps`] as const] : []),
            [
              'experts',
              `a request uses ${stats.expertsPerLayer.toFixed(1)} of ${experts} per layer at prefill`,
            ],
            ...(stats.covered === undefined
              ? []
              : [
                  [
                    'covered',
                    `${(100 * stats.covered).toFixed(1)} % of the prompt tokens have known experts`,
                  ] as const,
                ]),
            ...(gateRows > 0 && gateRows < requests
              ? [['gate', `scores of the first ${whole(gateRows)} requests only`] as const]
              : []),
            ...(recentHalfLife === undefined
              ? []
              : [['recent', `half-life ${recentHalfLife} tokens`] as const]),
            ...(stats.withoutCounts > 0
              ? [
                  [
                    'without',
                    `${whole(stats.withoutCounts)} requests have no counts and therefore no signature`,
                  ] as const,
                ]
              : []),
          ],
          terminal,
        ),
        terminal.bold('It can be used to'),
        ...allows.map(({ purpose, missing }) => {
          const text =
            missing.length === 0 ? PURPOSES[purpose] : `${PURPOSES[purpose]}: no ${missing.join(', ')}`
          const shown = wrapped(text, terminal.width - 4, 4)
          return missing.length === 0
            ? `  ${terminal.accent('✓')} ${shown}`
            : `  ${terminal.dim(`– ${shown}`)}`
        }),
        '',
        tensorTable(tensors, ignored, terminal),
      ].join('\n'),
  }
}

export function artifactView(
  artifact: Artifact,
  path: string,
  size: number,
  tensors: readonly TensorInfo[],
): View {
  const { about, primary, fallback, calibration } = artifact
  const clusters = clusterSummaries(artifact)
  const signature = ({ model, rho, curve, recentHalfLife }: FittedSignature) => ({
    transform: model.transform,
    recentHalfLife,
    layers: Array.from(model.layers),
    rho,
    curve,
  })
  return {
    json: {
      kind: 'artifact',
      file: path,
      bytes: size,
      ...about,
      calibrationRequests: calibration.requests,
      signature: signature(primary),
      fallback: fallback && signature(fallback),
      clusters,
      tensors: tensorsJson(tensors),
    },
    text: terminal =>
      [
        heading('Artifact', path, size, terminal),
        facts(
          [
            [
              'model',
              `${printable(about.model)}, ${about.layers} MoE layers × ${about.experts} experts, top-${about.topK}`,
            ],
            [
              'workers',
              `${about.workers}, ${about.balance === 'exact' ? 'balanced' : 'plain'} clusters of ${whole(calibration.requests)} calibration requests`,
            ],
            ['signature', signatureText(primary, about.layers)],
            ...(primary.curve ? [['ρ by layers', sparkline(primary.curve.rho)] as const] : []),
            ...(fallback
              ? [
                  [
                    'fallback',
                    `${signatureText(fallback, about.layers)}, for hand-offs without recent counts`,
                  ] as const,
                ]
              : []),
            [
              'ρ, all layers',
              Object.entries(about.transforms)
                .map(([name, rho]) => `${printable(name)} ${rho.toFixed(3)}`)
                .join(', ') || 'not measured',
            ],
            [
              'patterns',
              calibration.patterns
                ? 'decode patterns kept: experts can be placed after a refit'
                : 'none: the trace had no decode data',
            ],
            [
              'best match',
              about.bestSimilarity
                .filter(({ q }) => [0.01, 0.05, 0.5, 0.95].includes(q))
                .map(({ q, value }) => `p${100 * q} ${value.toFixed(3)}`)
                .join(', '),
            ],
            [
              'made from',
              `${whole(about.traceRequests)} requests, trace ${printable(about.traceSha256.slice(0, 12))}, seed ${about.seed}, ${about.restarts} restarts, eldr ${printable(about.version)}`,
            ],
          ],
          terminal,
        ),
        clusterTable({ ...about, clusters, vanillaSizes: [] }, about.domains, terminal),
        '',
        tensorTable(tensors, [], terminal),
      ].join('\n'),
  }
}

export function placementView(
  placement: PlacementFile,
  path: string,
  size: number,
  tensors: readonly TensorInfo[],
): View {
  const { model, clusters, layers, experts, ranks, traceSha256 } = placement
  const summary = placementSummary(placement)
  return {
    json: {
      kind: 'placement',
      file: path,
      bytes: size,
      model,
      clusters,
      layers,
      experts,
      traceSha256,
      ...summary,
      tensors: tensorsJson(tensors),
    },
    text: terminal =>
      [
        heading('Placement', path, size, terminal),
        facts(
          [
            ['model', `${printable(model)}, ${layers} MoE layers × ${experts} experts`],
            ['layout', `${clusters} clusters, ${ranks} ranks of ${experts / ranks} experts each`],
            ['made from', `trace ${printable(traceSha256.slice(0, 12))}`],
          ],
          terminal,
        ),
        placementTable(summary, terminal),
        '',
        tensorTable(tensors, [], terminal),
      ].join('\n'),
  }
}

function signatureText({ model, rho, recentHalfLife }: FittedSignature, layers: number): string {
  const quality = rho === undefined ? 'ρ not measured' : `ρ ${rho.toFixed(3)}`
  const halfLife = recentHalfLife === undefined ? '' : ` (half-life ${recentHalfLife} tokens)`
  return `${model.transform}${halfLife} on ${model.layers.length} of ${layers} layers, ${quality}: ${Array.from(model.layers).join(' ')}`
}

const heading = (kind: string, path: string, size: number, terminal: Terminal) =>
  `${terminal.bold(kind)} ${printable(path)} ${terminal.dim(bytes(size))}\n`

/** Names on the left, wrapped texts on the right. */
function facts(rows: readonly (readonly [string, string])[], terminal: Terminal): string {
  const width = Math.max(...rows.map(([name]) => columnsOf(name)))
  return `${rows.map(([name, text]) => `  ${terminal.dim(name.padEnd(width))}  ${wrapped(text, terminal.width - width - 4, width + 4)}`).join('\n')}\n`
}

const spreadText = ({ min, median, max }: Spread) =>
  min === max ? whole(min) : `${whole(min)} to ${whole(max)}, median ${whole(median)}`

const tensorsJson = (tensors: readonly TensorInfo[]) =>
  tensors.map(({ name, dtype, shape }) => ({ name, dtype, shape }))

/** A file may have thousands of tensors; `--json` lists all. */
const MAX_TENSORS = 60

function tensorTable(tensors: readonly TensorInfo[], ignored: readonly string[], terminal: Terminal): string {
  const unread = new Set(ignored)
  const rows = tensors
    .slice(0, MAX_TENSORS)
    .map(({ name, dtype, shape, begin, end }) => [
      unread.has(name)
        ? `${printable(clipped(name, 60))} ${terminal.dim('(not read)')}`
        : printable(clipped(name, 60)),
      dtype,
      shape.join(' × '),
      bytes(end - begin),
    ])
  const shown = table(
    [
      { title: 'tensor' },
      { title: 'type' },
      { title: 'shape', align: 'right' },
      { title: 'size', align: 'right' },
    ],
    rows,
    terminal,
  )
  return tensors.length > rows.length
    ? `${shown}\n  ${terminal.dim(`… and ${whole(tensors.length - rows.length)} more; --json lists all`)}`
    : shown
}
