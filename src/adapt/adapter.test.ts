import { createHash } from 'node:crypto'
import { cp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { fitFile, shipped } from '../../test/data.ts'
import { temporaryFolder } from '../../test/trace-support.ts'
import type { Artifact } from '../fit/artifact.ts'
import { readArtifact } from '../fit/artifact-read.ts'
import { writeArtifact } from '../fit/artifact-write.ts'
import { createRandom } from '../math/random.ts'
import type { PolicyName } from '../policy/decode-policy.ts'
import { Adapter, type AdapterHost, type AdapterOptions } from './adapter.ts'
import type { AdaptEvent, AdaptHold } from './adapt-view.ts'
import { attempt, type AttemptInput } from './attempt.ts'
import { asRequest, liveRows, type LiveRow } from './traffic.ts'

const WORKERS = 4
const folder = temporaryFolder()
afterAll(() => folder.remove())
const original = join(folder.path, 'original.safetensors')
let rows: Readonly<Record<'task' | 'lang', LiveRow[]>>

beforeAll(async () => {
  await writeArtifact(
    original,
    (await fitFile(shipped('lab16-task.calibration'), { workers: WORKERS })).artifact,
  )
  rows = {
    task: await liveRows(shipped('lab16-task.evaluation')),
    lang: await liveRows(shipped('lab16-lang.evaluation')),
  }
})

const hashOf = async (path: string) =>
  createHash('sha256')
    .update(await readFile(path))
    .digest('hex')
let folders = 0
const aborted = (signal: AbortSignal) =>
  new Promise<void>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error)))

/** A gateway of four workers whose clock the test advances. */
class Gateway implements AdapterHost {
  readonly events: AdaptEvent[] = []
  readonly inputs: AttemptInput[] = []
  policy: PolicyName = 'eldr'
  nowMs = 1_700_000_000_000
  tau = 0.1
  workers = WORKERS
  serving = ['a', 'b', 'c', 'd']
  loadFails = false
  noTarget = ''
  readonly holds: (AdaptHold | undefined)[] = []
  /** Artifacts that other gateways have shared. */
  readonly shared = new Map<string, Uint8Array>()
  /** The next refit waits for this, or for the end of its signal. */
  refitGate: Promise<void> | undefined
  held = false
  artifact!: Artifact
  sha256 = ''
  file = original
  adapter!: Adapter
  readonly #random = createRandom(5)
  #requests = 0

  async start(options: Partial<AdapterOptions> = {}): Promise<this> {
    this.artifact = await readArtifact(original)
    this.sha256 = await hashOf(original)
    this.adapter = new Adapter(
      {
        mode: 'on',
        folder: join(folder.path, `${folders++}`),
        kept: 4,
        sampleRequests: 1_024,
        halfLifeMs: 60_000,
        minGain: 0.01,
        watchMs: 60_000,
        ...options,
      },
      this,
      {
        run: async (input, signal) => {
          this.inputs.push(input)
          if (this.refitGate !== undefined) await Promise.race([this.refitGate, aborted(signal)])
          return attempt(input)
        },
      },
      () => this.nowMs,
    )
    return this
  }

  target() {
    if (this.noTarget !== '') return undefined
    const assignment = new Map(Array.from({ length: WORKERS }, (_, k) => [k, k]))
    return {
      artifact: this.artifact,
      sha256: this.sha256,
      file: this.file,
      policy: this.policy,
      tau: this.tau,
      serving: this.serving,
      workers: Array.from({ length: this.workers }, (_, cluster) => ({ cluster, fixed: false })),
      assignment,
      assigned: assignment,
      inflight: () => [],
    }
  }

  whyNoTarget(): string {
    return this.noTarget
  }

  async fetch(sha256: string): Promise<Uint8Array | undefined> {
    return this.shared.get(sha256)
  }

  running(): number {
    return 12 * WORKERS
  }

  isHeld(): boolean {
    return this.held
  }

  async load(
    path: string,
    shownAs: string,
    _assignment?: ReadonlyMap<number, number>,
    hold?: AdaptHold,
  ): Promise<string> {
    if (this.held) throw new Error('an experiment is running')
    if (this.loadFails) throw new Error('the disk is full')
    this.holds.push(hold)
    this.artifact = await readArtifact(path)
    this.sha256 = await hashOf(path)
    this.file = shownAs
    this.adapter.artifactChanged()
    return this.sha256
  }

  happened(event: AdaptEvent): void {
    this.events.push(event)
  }

  get kinds(): string[] {
    return this.events.map(({ kind }) => kind)
  }

  /** Ten requests per second of one kind, each with a stream of this TPOT. */
  async serve(traffic: 'task' | 'lang', seconds: number, tpotMs = 20): Promise<void> {
    for (let second = 0; second < seconds; second++) {
      for (let request = 0; request < 10; request++) {
        this.nowMs += 100
        const row = rows[traffic][this.#random.below(rows[traffic].length)]!
        const id = `${this.#requests++}`
        this.adapter.decided(asRequest(id, row, this.artifact), undefined)
        this.adapter.streamed(tpotMs * (1 + 0.1 * this.#random.uniform()))
      }
      await this.adapter.tick()
    }
  }
}

describe('the adapter', () => {
  it('leaves an artifact that fits alone', async () => {
    const gateway = await new Gateway().start()
    await gateway.serve('task', 120)
    expect(gateway.kinds).toEqual([])
    expect(gateway.adapter.view()).toMatchObject({ state: 'steady', swaps: [], suggestion: false })
    expect(gateway.adapter.view().drift.meanRank).toBeGreaterThan(0.3)
  })

  it('swaps when traffic has changed, says what it does, and keeps the swap if the tail is no worse', async () => {
    const gateway = await new Gateway().start()
    const { sha256 } = gateway
    await gateway.serve('task', 60)
    await gateway.serve('lang', 60)
    expect(gateway.kinds.slice(0, 3)).toEqual(['drift', 'judged', 'swapped'])
    const { swaps, last, state } = gateway.adapter.view()
    expect(state).toBe('watching')
    expect(last).toMatchObject({ verdict: 'swap', judgedBy: 'predicted' })
    expect(swaps[0]).toMatchObject({ parentSha256: sha256, sha256: gateway.sha256, state: 'in_force' })
    expect(swaps[0]!.gain).toBeGreaterThan(0.01)
    // Only requests since the change were used, give or take those around it.
    expect(gateway.inputs[0]!.sample.rows).toBeLessThan(400)
    expect((await readArtifact(gateway.file)).about.lineage!.parentSha256).toBe(sha256)
    await gateway.serve('lang', 120)
    expect(gateway.kinds).toContain('kept')
    expect(gateway.kinds).not.toContain('rolled_back')
    expect(gateway.adapter.view().drift.meanRank).toBeGreaterThan(0.3)
  })

  it('takes a swap back if the tail of TPOT gets worse, and then waits', async () => {
    const gateway = await new Gateway().start()
    const { sha256 } = gateway
    await gateway.serve('lang', 30)
    while (!gateway.kinds.includes('swapped')) await gateway.serve('lang', 1)
    await gateway.serve('lang', 40, 30)
    expect(gateway.kinds).toContain('rolled_back')
    expect(gateway.sha256).toBe(sha256)
    expect(gateway.file).toBe(original) // its name for people
    const attempts = gateway.inputs.length
    await gateway.serve('lang', 120)
    expect(gateway.inputs.length).toBe(attempts)
    const { state, note, swaps } = gateway.adapter.view()
    expect(state).toBe('held')
    expect(note).toMatch(/rolled back: no refit before 20/)
    expect(swaps[0]).toMatchObject({ state: 'rolled_back' })
    expect(swaps[0]!.p99AfterMs).toBeGreaterThan(swaps[0]!.p99BeforeMs!)
  })

  it('does not blame a swap for a tail that more requests made longer', async () => {
    const gateway = await new Gateway().start()
    while (!gateway.kinds.includes('swapped')) await gateway.serve('lang', 1)
    for (let second = 0; second < 40; second++) {
      await gateway.serve('lang', 1, 30)
      gateway.nowMs -= 500 // twice as many per second
    }
    expect(gateway.kinds).not.toContain('rolled_back')
  })

  it('does not blame a swap for a tail that a change of policy, τ or workers made longer', async () => {
    for (const change of [{ policy: 'band' }, { tau: 0.3 }, { serving: ['a', 'b', 'c'] }] as const) {
      const gateway = await new Gateway().start()
      while (!gateway.kinds.includes('swapped')) await gateway.serve('lang', 1)
      await gateway.serve('lang', 5)
      Object.assign(gateway, change)
      await gateway.serve('lang', 40, 30)
      expect(gateway.kinds).not.toContain('rolled_back')
      expect(gateway.events.find(({ kind }) => kind === 'kept')).toMatchObject({
        why: 'policy, τ or workers have changed',
        swap: { sha256: gateway.sha256 },
      })
    }
  })

  it('clears the drift and the suggestion when traffic is as before again', async () => {
    const gateway = await new Gateway().start({ mode: 'suggest' })
    await gateway.serve('lang', 42)
    expect(gateway.adapter.view()).toMatchObject({ state: 'drifting', suggestion: true })
    await gateway.serve('task', 120)
    expect(gateway.kinds).toContain('recovered')
    const { state, suggestion, drift } = gateway.adapter.view()
    expect({ state, suggestion, sinceMs: drift.sinceMs }).toEqual({ state: 'steady', suggestion: false })
    await gateway.serve('lang', 60)
    expect(gateway.kinds.filter(kind => kind === 'drift').length).toBe(2)
  })

  it('samples a request that is retried once', async () => {
    const gateway = await new Gateway().start()
    const request = asRequest('a', rows.task[0]!, gateway.artifact)
    for (let time = 0; time < 3; time++) gateway.adapter.decided(request, undefined)
    const { sample, drift } = gateway.adapter.view()
    expect([sample.requests, drift.history[0]!.requests]).toEqual([1, 1])
  })

  it('suggests and does not swap in mode suggest, until it is told to', async () => {
    const gateway = await new Gateway().start({ mode: 'suggest' })
    const { sha256 } = gateway
    expect(await gateway.adapter.swap()).toMatchObject({ kind: 'refused' })
    await gateway.serve('lang', 60)
    expect(gateway.kinds.slice(0, 2)).toEqual(['drift', 'judged'])
    expect(gateway.sha256).toBe(sha256)
    expect(gateway.adapter.view()).toMatchObject({ suggestion: true, last: { verdict: 'suggest' } })
    gateway.workers = 3
    const { adapter } = gateway
    expect(await adapter.swap()).toEqual({
      kind: 'refused',
      why: 'It was made for 4 decode workers, and there are 3: wait for the next one.',
    })
    gateway.workers = WORKERS
    while (!adapter.view().suggestion) await gateway.serve('lang', 1)
    expect(await gateway.adapter.swap()).toEqual({ kind: 'ok' })
    expect(gateway.adapter.view().last!.verdict).toBe('swap') // no longer something to take
    expect(gateway.sha256).not.toBe(sha256)
    expect(gateway.adapter.view()).toMatchObject({ suggestion: false, swaps: [{ state: 'in_force' }] })
  })

  it('undoes swaps one by one, back to the original bytes, also after a restart', async () => {
    const gateway = await new Gateway().start({ folder: join(folder.path, 'undo') })
    const { sha256: first } = gateway
    expect(await gateway.adapter.undo()).toMatchObject({ kind: 'refused' })
    while (!gateway.kinds.includes('swapped')) await gateway.serve('lang', 1)
    const { sha256: second, file, artifact } = gateway
    expect(second).not.toBe(first)

    const next = await new Gateway().start({ folder: join(folder.path, 'undo') })
    Object.assign(next, { sha256: second, file, artifact })
    next.adapter.artifactChanged()
    await next.adapter.restore()
    expect(next.adapter.view().swaps).toMatchObject([{ sha256: second, state: 'in_force' }])
    expect(await next.adapter.undo()).toEqual({ kind: 'ok' })
    expect(next.sha256).toBe(first)
    expect(next.adapter.view()).toMatchObject({ state: 'held', swaps: [{ state: 'undone' }] })

    // The third process knows what became of the swap, and that refits are held.
    const third = await new Gateway().start({ folder: join(folder.path, 'undo') })
    await third.adapter.restore()
    expect(third.adapter.view()).toMatchObject({
      state: 'held',
      swaps: [{ sha256: second, state: 'undone' }],
    })
    third.nowMs += 1_800_000
    await third.adapter.tick()
    expect(third.adapter.view().state).toBe('steady')
  })

  it('stops a running refit for an undo', async () => {
    const gateway = await new Gateway().start()
    const { sha256 } = gateway
    while (!gateway.kinds.includes('swapped')) await gateway.serve('lang', 1)
    while (!gateway.kinds.includes('kept')) await gateway.serve('lang', 1)
    gateway.refitGate = new Promise(() => {})
    const before = gateway.inputs.length
    for (let second = 0; second < 120 && gateway.inputs.length === before; second++)
      void gateway.serve('task', 1)
    expect(gateway.adapter.view().state).toBe('refitting')
    expect(await gateway.adapter.undo()).toEqual({ kind: 'ok' })
    expect(gateway.sha256).toBe(sha256)
    expect(gateway.adapter.view()).toMatchObject({ state: 'held', swaps: [{ state: 'undone' }] })
    expect(gateway.adapter.view().last!.verdict).toBe('swap') // the stopped refit is no failure
  })

  it('stays on hold when workers change, and not when an operator loads an artifact', async () => {
    const gateway = await new Gateway().start()
    while (!gateway.kinds.includes('swapped')) await gateway.serve('lang', 1)
    const { sha256 } = gateway
    await gateway.adapter.undo()
    expect(gateway.holds.at(-1)).toMatchObject({ how: 'undone', sha256 })
    gateway.adapter.artifactChanged('refit')
    await gateway.serve('lang', 120)
    expect(gateway.adapter.view().state).toBe('held')
    gateway.adapter.artifactChanged('artifact')
    await gateway.serve('lang', 60)
    expect(gateway.kinds.filter(kind => kind === 'swapped').length).toBe(2)
  })

  it('lists and undoes a swap of another gateway, and shares its hold', async () => {
    const [a, b] = [await new Gateway().start(), await new Gateway().start()]
    const { sha256: first } = a
    while (!a.kinds.includes('swapped')) await a.serve('lang', 1)
    // As a replica: the bytes come from the store, and the file is gone when they are read.
    const bytes = join(folder.path, 'from-the-store.safetensors')
    await cp(a.file, bytes)
    await b.load(bytes, a.file)
    b.adapter.held(undefined)
    await rm(bytes)
    expect(b.adapter.view().swaps).toMatchObject([
      { sha256: a.sha256, parentSha256: first, state: 'in_force' },
    ])
    expect(await b.adapter.undo()).toEqual({ kind: 'ok' })
    expect([b.sha256, b.file]).toEqual([first, original])
    const hold = b.holds.at(-1)
    await a.load(original, original)
    a.adapter.held(hold)
    expect(a.adapter.view()).toMatchObject({ state: 'held', swaps: [{ state: 'undone' }] })
    a.adapter.held(undefined)
    expect(a.adapter.view().state).toBe('steady')
  })

  it('undoes a swap whose parent it never had with the bytes that are shared, or says what to do', async () => {
    const made = await new Gateway().start()
    while (!made.kinds.includes('swapped')) await made.serve('lang', 1)
    const late = await new Gateway().start()
    const { sha256: first } = late
    Object.assign(late, { sha256: made.sha256, file: made.file, artifact: made.artifact })
    const other = await new Gateway().start()
    other.sha256 = 'c'.repeat(64)
    other.adapter.artifactChanged()
    await other.load(made.file, made.file)
    expect(await other.adapter.undo()).toEqual({
      kind: 'refused',
      why: 'This gateway lacks the artifact before the swap: undo it on the gateway that made it, or load an artifact.',
    })
    other.shared.set(first, await readFile(original))
    expect(await other.adapter.undo()).toEqual({ kind: 'ok' })
    expect(other.sha256).toBe(first)
  })

  it('forgets a suggestion when an operator loads an artifact', async () => {
    const gateway = await new Gateway().start({ mode: 'suggest' })
    while (!gateway.adapter.view().suggestion) await gateway.serve('lang', 1)
    const other = join(folder.path, 'other.safetensors')
    await writeArtifact(
      other,
      (await fitFile(shipped('lab16-lang.calibration'), { workers: WORKERS })).artifact,
    )
    await gateway.load(other, other)
    expect(gateway.adapter.view()).toMatchObject({ state: 'steady', suggestion: false })
  })

  it('says why a swap failed, and tries again later', async () => {
    const own = join(folder.path, 'failed')
    const gateway = await new Gateway().start({ folder: own })
    gateway.loadFails = true
    while (!gateway.kinds.includes('failed')) await gateway.serve('lang', 1)
    expect(gateway.adapter.view().last).toMatchObject({ verdict: 'failed', problem: 'the disk is full' })
    expect(await readdir(own)).toEqual([]) // no swap, no parent
    gateway.loadFails = false
    await gateway.serve('lang', 60)
    expect(gateway.kinds).toContain('swapped')
  })

  it('skips damaged files of its folder, and says which', async () => {
    const own = join(folder.path, 'damaged')
    const gateway = await new Gateway().start({ folder: own })
    while (!gateway.kinds.includes('swapped')) await gateway.serve('lang', 1)
    const name = 'swap-20200101T000000Z-aaaaaaaa.artifact.safetensors'
    await writeFile(join(own, name), 'no tensors')
    const next = await new Gateway().start({ folder: own })
    await next.adapter.restore()
    expect(next.events).toMatchObject([{ kind: 'skipped', file: join(own, name) }])
    expect(next.adapter.view().swaps.length).toBe(1)
  })

  it('says at the start that its folder cannot be written, in the log only in mode on', async () => {
    for (const mode of ['suggest', 'on'] as const) {
      const gateway = await new Gateway().start({ mode, folder: join(original, 'in a file') })
      await gateway.adapter.restore()
      expect(gateway.adapter.view().problem).toMatch(/ELDR_ADAPT_FOLDER/)
      expect(gateway.kinds).toEqual(mode === 'on' ? ['failed'] : [])
    }
  })

  it('begins when the first decode worker comes', async () => {
    const gateway = new Gateway()
    gateway.noTarget = 'There is no decode worker.'
    await gateway.start()
    expect(gateway.adapter.view()).toMatchObject({ state: 'idle', note: 'There is no decode worker.' })
    gateway.noTarget = ''
    await gateway.serve('task', 2)
    expect(gateway.adapter.view().sample.requests).toBeGreaterThan(0)
  })

  it('pauses while an experiment holds the routing, and swaps after it', async () => {
    const gateway = await new Gateway().start()
    gateway.held = true
    await gateway.serve('lang', 90)
    expect(gateway.kinds).toEqual(['drift'])
    expect(gateway.inputs).toEqual([])
    expect(gateway.adapter.view()).toMatchObject({ state: 'held', note: expect.stringMatching(/experiment/) })
    gateway.held = false
    await gateway.serve('lang', 2)
    expect(gateway.kinds).toEqual(['drift', 'judged', 'swapped'])
  })

  it('is not set back by an experiment that begins during a refit or a swap', async () => {
    const gateway = await new Gateway().start()
    const { inputs } = gateway
    while (inputs.length === 0) {
      // It begins when the refit has begun.
      Object.defineProperty(gateway, 'held', { get: () => inputs.length === 1, configurable: true })
      await gateway.serve('lang', 1)
    }
    expect(gateway.kinds).toEqual(['drift', 'judged'])
    Object.defineProperty(gateway, 'held', { value: false, writable: true })
    await gateway.serve('lang', 2)
    // No wait for a retry, which a refit without a gain has.
    expect(gateway.kinds).toEqual(['drift', 'judged', 'judged', 'swapped'])
  })

  it('does not blame a swap for the streams of an experiment', async () => {
    const gateway = await new Gateway().start()
    while (!gateway.kinds.includes('swapped')) await gateway.serve('lang', 1)
    gateway.held = true
    await gateway.serve('lang', 40, 30)
    gateway.held = false
    await gateway.serve('lang', 80)
    expect(gateway.kinds).toContain('kept')
    expect(gateway.kinds).not.toContain('rolled_back')
    expect(gateway.kinds).not.toContain('failed')
  })

  it('still takes a swap back that is worse after an experiment', async () => {
    const gateway = await new Gateway().start()
    while (!gateway.kinds.includes('swapped')) await gateway.serve('lang', 1)
    gateway.held = true
    await gateway.serve('lang', 40, 30)
    gateway.held = false
    await gateway.serve('lang', 40, 30)
    expect(gateway.kinds).toContain('rolled_back')
  })

  it('is idle without a policy that looks at experts, and says so', async () => {
    const gateway = await new Gateway().start()
    gateway.policy = 'jsq'
    await gateway.serve('lang', 60)
    expect(gateway.inputs).toEqual([])
    expect(gateway.adapter.view()).toMatchObject({
      state: 'idle',
      note: 'The policy jsq does not look at experts.',
    })
  })
})
