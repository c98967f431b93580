/**
 * Results of the experiments on a served engine (`bench/gpu/serving/results/*.json`, format
 * `eldr.gpu-serving.v1`): one file per experiment, each with the conditions under which it ran. Files without
 * conditions, and those of a dry run, are refused: they are no evidence.
 */
import { z } from 'zod'

export const SERVED_FORMAT = 'eldr.gpu-serving.v1'
/** Until this time `eldr` was the paper's rule, which has been called `band` since. */
export const RENAMED_AT = '2026-11-16T15:14:09Z'

const numbers = z.array(z.number())
const quantiles = z.object({
  count: z.number(),
  mean: z.number(),
  p50: z.number(),
  p90: z.number(),
  p99: z.number(),
})

const conditions = z.object({
  date: z.iso.datetime(),
  commit: z.string().regex(/^[0-9a-f]{40}$/),
  modified: z.boolean().optional(),
  /** Code that differed from the commit; some results only say that something did. */
  changed: z.array(z.string()).optional(),
  gpu: z.object({
    name: z.string(),
    driver: z.string(),
    memoryGib: z.number().optional(),
    cuda: z.string().optional(),
  }),
  host: z.object({ cpu: z.string().optional(), cores: z.number() }),
  versions: z.looseObject({ vllm: z.string(), torch: z.string(), python: z.string() }),
  mps: z.boolean(),
  copyBandwidthGBs: z.number().optional(),
  /** Which bytes the bandwidth counts. */
  copyCounts: z.string().optional(),
})

const model = z.object({
  name: z.string(),
  what: z.string().optional(),
  layers: z.number().int().positive(),
  experts: z.number().int().positive(),
  topK: z.number().int().positive(),
  hidden: z.number().optional(),
  expertWidth: z.number().optional(),
  bytesPerExpert: z.number().optional(),
  dtype: z.string(),
  weights: z.enum(['widened', 'dummy', 'trained']),
  moeBackend: z.string().optional(),
  attentionBackend: z.string().optional(),
})

const engine = z.object({
  flags: z.array(z.string()).optional(),
  graphs: z.boolean().optional(),
  blockSize: z.number().optional(),
  runner: z.string().optional(),
})

/** Decode steps, column by column. `experts`: distinct ones, mean over the layers. */
const steps = z.object({
  ms: numbers,
  batch: numbers,
  experts: numbers,
  contextTokens: numbers.optional(),
  /** Time of the device in the step. */
  deviceMs: numbers.optional(),
  worker: numbers.optional(),
  /** Index into the cells of a profile. */
  cell: numbers.optional(),
})

const profile = z.object({
  /** Engines on the GPU at once, each under the same load; one alone if absent. */
  engines: z.number().int().positive().optional(),
  /** What the plugin logged. */
  log: z.array(z.string()).optional(),
  steps,
  /** Loads, each a closed loop that keeps `concurrency` requests running. */
  cells: z.array(z.object({ concurrency: z.number() })).optional(),
  kept: z.object({ recorded: z.number(), kept: z.number(), how: z.string().optional() }).optional(),
  prefill: z.object({ ms: numbers, tokens: numbers }).optional(),
  kv: z
    .object({
      bytesPerToken: z.number(),
      capacityTokens: z.number().optional(),
      transferMs: numbers.optional(),
      transferTokens: numbers.optional(),
    })
    .optional(),
})

const work = z.object({ steps: z.number(), batch: z.number(), experts: z.number() })

/** One policy in one round. */
const run = z.object({
  policy: z.string(),
  round: z.number().int().nonnegative(),
  seed: z.number().optional(),
  startedAt: z.iso.datetime().optional(),
  tpotMs: quantiles,
  itlMs: quantiles,
  ttftMs: quantiles,
  requests: z.object({ sent: z.number(), counted: z.number(), ok: z.number(), failed: z.number() }),
  client: z.object({ keptUp: z.boolean() }).optional(),
  /** Of counted requests, column by column. */
  perRequest: z.object({ outputTokens: numbers }).optional(),
  together: work,
  /** Means of all steps of a batch size, column by column. */
  byBatch: z.object({ batch: numbers, steps: numbers, experts: numbers }).optional(),
  steps: steps.optional(),
})
const failedRun = z.object({ policy: z.string(), round: z.number(), failed: z.string() })

const served = z.object({
  decoders: z.number().int().positive(),
  rate: z.number(),
  targetBatch: z.number().optional(),
  outputTokens: z.tuple([z.number(), z.number()]).optional(),
  temperature: z.number().optional(),
  prompts: z.string().optional(),
  prefillModel: z.string().optional(),
  /** Costs of a step that `union` went by; `fixed`, those of a profile, if absent. */
  stepCost: z.enum(['learnt', 'fixed']).optional(),
  warmupSeconds: z.number().optional(),
  countedSeconds: z.number().optional(),
  /** Written before the first run; the hash is that of the file at that time. */
  prediction: z.object({ file: z.string(), sha256: z.string() }).optional(),
  runs: z.array(z.union([failedRun, run])),
})

/** Differences of pairs: the median and its 95 % interval between two order statistics. */
const added = z.object({ median: z.object({ median: z.number(), low: z.number(), high: z.number() }) })

/** Host time of the plugin's functions in µs; callers include the functions they call. */
const timers = z.array(
  z.object({
    promptTokens: z.number(),
    functions: z.record(
      z.string(),
      z.object({ usPerRequest: z.number(), callsPerRequest: z.number().optional() }),
    ),
  }),
)

const captureCost = z.object({
  cells: z.array(
    z.object({
      promptTokens: z.number(),
      concurrency: z.number(),
      withMs: numbers,
      withoutMs: numbers,
      addedMs: added,
      /** The same within the engine, without the API server. */
      engineAddedMs: added,
      /** Capture was switched on and off in one server; otherwise two servers were compared. */
      switched: z.boolean(),
    }),
  ),
  timers,
  throughput: z
    .array(
      z.object({
        promptTokens: z.number(),
        concurrency: z.number(),
        withPerSecond: z.number(),
        withoutPerSecond: z.number(),
      }),
    )
    .optional(),
})

const captureProfile = z.object({
  timers,
  /** Servers that differ in one thing each, in the order in which things are added. */
  variants: z
    .array(
      z.object({
        promptTokens: z.number(),
        legMs: z.record(z.string(), quantiles),
        /** By `later − earlier`. */
        addedMs: z.record(z.string(), added),
        what: z.record(z.string(), z.string()),
      }),
    )
    .optional(),
})

const captureExact = z.object({
  cases: z.array(
    z.object({
      name: z.string(),
      /** How the prompts were sent; part of `name` in some results. */
      round: z.string().optional(),
      prompts: z.number().optional(),
      differingByLayer: numbers.optional(),
      sameTexts: z.number().optional(),
      promptChoices: z.number(),
      promptDiffering: z.number(),
      decodeChoices: z.number().optional(),
      decodeDiffering: z.number().optional(),
      against: z.string(),
      note: z.string().optional(),
    }),
  ),
  pd: z
    .object({
      prompts: z.number(),
      equalTexts: z.number(),
      coldEqual: z.number().optional(),
      selfColdWarmEqual: z.number().optional(),
      signaturesRejected: z.number().optional(),
      transfersFailed: z.number().optional(),
      ticketsLeft: z.number().optional(),
      /** Texts that are equal under the two policies, one by one and at once. */
      policiesEqual: z.number().optional(),
      policiesAtOnceEqual: z.number().optional(),
    })
    .optional(),
})

/**
 * Decode steps while prompts generate 64 tokens each, on the speculating server and on a plain one.
 * `experts`: distinct ones per step, summed over the layers.
 */
const speculation = {
  prompts: z.number().optional(),
  observedSteps: z.number().optional(),
  expertsPerStepAllLayers: z.number().optional(),
  plainObservedSteps: z.number().optional(),
  plainExpertsPerStepAllLayers: z.number().optional(),
  /** After a first pass; results from before it have no times that can be compared. */
  warmSeconds64Tokens: z.number().optional(),
  plainWarmSeconds64Tokens: z.number().optional(),
  drafted: z.number().optional(),
  accepted: z.number().optional(),
}

const features = z.array(
  z.object({
    feature: z.string(),
    verdict: z.enum(['run', 'refused', 'failed', 'not run']),
    note: z.string(),
    figures: z
      .object({
        /** Of decode steps, if they were timed. */
        stepMs: quantiles.optional(),
        /** Distinct ones per layer and step: that requests need, and with those of padding. */
        experts: z.number().optional(),
        readExperts: z.number().optional(),
        /** Of a KV transfer, mean. */
        transferMs: z.number().optional(),
        ...speculation,
      })
      .optional(),
  }),
)

const envelope = {
  format: z.literal(SERVED_FORMAT),
  name: z.string().regex(/^[a-z0-9-]+$/),
  status: z.enum(['ok', 'partial']),
  conditions,
  model,
  engine: engine.optional(),
  seconds: z.number().optional(),
}

const schema = z.discriminatedUnion('kind', [
  z.object({ ...envelope, kind: z.literal('profile'), profile }),
  z.object({ ...envelope, kind: z.literal('served'), served }),
  z.object({ ...envelope, kind: z.literal('capture-cost'), captureCost }),
  z.object({ ...envelope, kind: z.literal('capture-profile'), captureProfile }),
  z.object({ ...envelope, kind: z.literal('capture-exact'), captureExact }),
  z.object({ ...envelope, kind: z.literal('features'), features }),
])

export type ServedResult = z.infer<typeof schema>
export type ResultOf<Kind extends ServedResult['kind']> = Extract<ServedResult, { kind: Kind }>
export type Conditions = z.infer<typeof conditions>
export type ServedSteps = z.infer<typeof steps>
export type ServedRun = z.infer<typeof run>

/** Kinds of results that no page uses: hashes of traces and clusters. */
const UNUSED: ReadonlySet<unknown> = new Set(['prepare'])

/**
 * Throws with the file and the field that is wrong. Undefined for kinds of results that are not used here.
 */
export function parseServedResult(file: string, value: unknown): ServedResult | undefined {
  const { format, kind } = Object(value) as { format?: unknown; kind?: unknown }
  if (format === SERVED_FORMAT && UNUSED.has(kind)) return undefined
  const parsed = schema.safeParse(value)
  if (!parsed.success) {
    const [first] = parsed.error.issues
    throw new Error(`${file}: ${first!.path.join('.')}: ${first!.message}`)
  }
  const result = parsed.data
  if (`${result.name}.json` !== file) throw new Error(`${file}: its name is ${result.name}`)
  for (const columns of stepsIn(result)) checkColumns(file, columns)
  return result
}

/** Runs that have figures. */
export function completeRuns({ served: { runs } }: ResultOf<'served'>): ServedRun[] {
  return runs.filter((one): one is ServedRun => !('failed' in one))
}

function stepsIn(result: ServedResult): ServedSteps[] {
  if (result.kind === 'profile') return [result.profile.steps]
  if (result.kind === 'served') return completeRuns(result).flatMap(one => one.steps ?? [])
  return []
}

function checkColumns(file: string, columns: ServedSteps): void {
  for (const [name, values] of Object.entries(columns))
    if (values !== undefined && values.length !== columns.ms.length)
      throw new Error(`${file}: steps.${name} has ${values.length} values, and steps.ms ${columns.ms.length}`)
}
