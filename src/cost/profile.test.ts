import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import * as fc from 'fast-check'
import { afterAll, describe, expect, it } from 'vitest'
import { failure, temporaryFolder } from '../../test/trace-support.ts'
import {
  type CostProfile,
  deviceUs,
  hostUs,
  layerWeights,
  noiseFactor,
  prefillUs,
  stepParts,
  stepUs,
  transferUs,
} from './profile.ts'
import { loadProfile, parseProfile, profileNames } from './profile-file.ts'

const folder = temporaryFolder()
afterAll(() => folder.remove())
const first = await loadProfile('h200-first')
const root = new URL('../../', import.meta.url)
const shipped = JSON.parse(readFileSync(new URL('profiles/h200-first.json', root), 'utf8')) as Record<
  string,
  object
>
const files = readdirSync(new URL('profiles/', root))
const names = files.map(file => file.replace(/\.json$/, ''))

describe('a cost profile', () => {
  it('h200-first has the step cost of the prototype: 48 × 28 µs + 25 µs per request, and 28 µs + 3.1 µs per expert in each layer', () => {
    const prototypeUs = (batch: number, active: number) => 48 * 28 + 25 * batch + 48 * (28 + 3.1 * active)
    for (const [batch, active] of [
      [1, 8],
      [35, 83.6],
      [256, 128],
    ] as const) {
      expect(stepUs(first, batch, active, 1e6)).toBeCloseTo(prototypeUs(batch, active), 9)
    }
  })

  it('gives policies the same increments as the step cost', () => {
    const { base, perExpert, perRequest } = stepParts(first)
    expect(base + 20 * perExpert + 4 * perRequest).toBeCloseTo(stepUs(first, 4, 20, 0), 9)
    expect(stepParts(first, 4).perExpert).toBe(perExpert / 4)
  })

  it('charges context per thousand tokens of the whole batch', () => {
    const profile = { ...first, decode: { ...first.decode, perContextKTokenUs: 2 } }
    expect(stepUs(profile, 4, 20, 5_000) - stepUs(profile, 4, 20, 0)).toBeCloseTo(10)
  })

  it('charges windowed layers per thousand tokens in the window, with one sum per window', () => {
    const windows = [
      { tokens: 128, perContextKTokenUs: 3 },
      { tokens: 1_024, perContextKTokenUs: 50 },
    ]
    const plain = { ...first, decode: { ...first.decode, perContextKTokenUs: 2 } }
    const windowed = { ...plain, decode: { ...plain.decode, windows } }
    const [total, ...capped] = [100 + 500 + 5_000, 100 + 128 + 128, 100 + 500 + 1_024]
    const addedUs = stepUs(windowed, 3, 20, total!, capped) - stepUs(plain, 3, 20, total!)
    expect(addedUs).toBeCloseTo((3 * 356 + 50 * 1_624) / 1000, 9)
  })

  it('requires the windowed sums', () => {
    const windowed = {
      ...first,
      decode: { ...first.decode, windows: [{ tokens: 128, perContextKTokenUs: 3 }] },
    }
    expect(() => stepUs(windowed, 1, 8, 100)).toThrow('0 windowed sums for 1 windows')
    expect(() => stepUs(windowed, 1, 8, 100, [100, 100])).toThrow('2 windowed sums for 1 windows')
  })

  it('adds the host to the device, or takes the longer of the two if they overlap', () => {
    const withHost = (baseUs: number, overlaps: boolean): CostProfile => ({
      ...first,
      decode: { ...first.decode, host: { baseUs, perRequestUs: 10, overlaps } },
    })
    const onDevice = stepUs(first, 4, 20, 0)
    expect(hostUs(first, 4)).toBe(0)
    expect(hostUs(withHost(500, true), 4)).toBe(540)
    expect(deviceUs(withHost(500, true), 4, 20, 0)).toBe(onDevice)
    expect(stepUs(withHost(500, false), 4, 20, 0)).toBe(onDevice + 540)
    expect(stepUs(withHost(500, true), 4, 20, 0)).toBe(onDevice)
    expect(stepUs(withHost(1e5, true), 4, 20, 0)).toBe(1e5 + 40)
    expect(stepParts(withHost(500, false))).toEqual(stepParts(first))
  })

  it('draws noise between the factors', () => {
    const noise = { factors: [0.9, 1, 1.4] }
    expect([0, 0.25, 0.5, 0.75].map(uniform => noiseFactor(noise, uniform))).toEqual([0.9, 0.95, 1, 1.2])
    const percentiles = { factors: Array.from({ length: 101 }, (_, at) => 1 + at / 100) }
    expect(noiseFactor(percentiles, 1 - 2 ** -53)).toBeCloseTo(2, 9)
  })

  it('charges prefill by tokens and transfers by bytes', () => {
    expect(prefillUs(first, 400)).toBe(8_000 + 25 * 400)
    expect(transferUs(first, 1_000)).toBeCloseTo(1_000 + (98_304 * 1_000) / 50e9 / 1e-6)
  })

  it('maps a trace onto its layers: layer l takes ⌊l·L_trace/L_profile⌋, and the weights are the shares taken', () => {
    expect(Array.from(layerWeights(48, 16))).toEqual(Array.from({ length: 16 }, () => 3 / 48))
    expect(Array.from(layerWeights(2, 4))).toEqual([0.5, 0, 0.5, 0])
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 99 }),
        fc.array(fc.nat({ max: 128 }), { minLength: 1, maxLength: 99 }),
        (layers, active) => {
          const taken = Array.from(
            { length: layers },
            (_, l) => active[Math.floor((l * active.length) / layers)]!,
          )
          const weighted = layerWeights(layers, active.length).reduce(
            (sum, weight, l) => sum + weight * active[l]!,
            0,
          )
          expect(weighted).toBeCloseTo(taken.reduce((a, b) => a + b, 0) / layers, 9)
        },
      ),
    )
  })
})

describe('a profile file', () => {
  const withChange = (key: string, change: object) =>
    JSON.stringify({ ...shipped, [key]: { ...shipped[key], ...change } })
  const withWindows = (windows: unknown) => withChange('decode', { windows })
  const window = { tokens: 128, perContextKTokenUs: 1 }
  const host = { baseUs: 3_000, perRequestUs: 20, overlaps: true }
  const withHost = (change: object) => withChange('decode', { host: { ...host, ...change } })
  const withSharing = (change: object) =>
    withChange('decode', { sharing: { by: 'layer', capacity: 1, ...change } })
  const withFactors = (factors: unknown) => withChange('decode', { noise: { factors } })

  it('is loaded by name if shipped, and by path otherwise', async () => {
    expect(await profileNames()).toContain('h200-first')
    const path = join(folder.path, 'mine.json')
    writeFileSync(path, JSON.stringify({ ...shipped, name: 'mine' }))
    expect(await loadProfile(path)).toEqual({ ...first, name: 'mine' })
  })

  it('lists the names if it does not know one, and names the file that it cannot read', async () => {
    expect((await failure('h200-frist', () => loadProfile('h200-frist'))).message).toContain('h200-first')
    expect((await failure('nowhere.json', () => loadProfile('nowhere.json'))).code).toBe(
      'ELDR_FILE_UNREADABLE',
    )
  })

  it('is every file in profiles/', async () => {
    expect(files.filter(file => !file.endsWith('.json'))).toEqual([])
    expect(await profileNames()).toEqual(names.toSorted())
  })

  it.each(names)('%s loads by its name and states its assumptions', async name => {
    const { name: itsOwn, provenance } = await loadProfile(name)
    expect(itsOwn).toBe(name)
    expect(provenance.what).not.toBe('')
    expect(provenance.notes.filter(note => note.includes('Assumed')).length).toBeGreaterThanOrEqual(2)
  })

  it.each(['qwen3-30b-a3b', 'gpt-oss-120b', 'gemma-4-26b-a4b'])(
    'h200-%s has the fitted numbers',
    async shape => {
      const text = readFileSync(new URL('bench/gpu/results/h200-fitted.json', root), 'utf8')
      const fitted = (JSON.parse(text) as { shapes: Record<string, { profile: Partial<CostProfile> }> })
        .shapes[shape]!
      expect(await loadProfile(`h200-${shape}`)).toMatchObject(fitted.profile)
    },
  )

  it('may have windowed layers of up to 8 sizes', () => {
    const windows = Array.from({ length: 8 }, (_, w) => ({ tokens: 128 << w, perContextKTokenUs: w }))
    expect(parseProfile('p.json', withChange('decode', { windows })).decode.windows).toEqual(windows)
    expect(parseProfile('p.json', withChange('decode', {})).decode).not.toHaveProperty('windows')
  })

  it('may have a host part, a rule for shared devices, and noise', () => {
    const more = { host, sharing: { by: 'bandwidth', capacity: 1.25 }, noise: { factors: [0.9, 1, 1.2] } }
    expect(parseProfile('p.json', withChange('decode', more)).decode).toMatchObject(more)
    for (const key of ['host', 'sharing', 'noise'])
      expect(parseProfile('p.json', withChange('decode', {})).decode).not.toHaveProperty(key)
  })

  it.each([
    ['{', 'ELDR_FILE_WRONG_KIND', 'no JSON'],
    ['[]', 'ELDR_FILE_BAD_METADATA', 'an object'],
    ['{}', 'ELDR_FILE_WRONG_KIND', 'without a format'],
    [
      JSON.stringify({ ...shipped, format: 'eldr.profile.v2' }),
      'ELDR_FILE_UNKNOWN_VERSION',
      'eldr.profile.v2',
    ],
    [JSON.stringify({ ...shipped, format: 'eldr.trace.v1' }), 'ELDR_FILE_WRONG_KIND', 'eldr.trace.v1'],
    [JSON.stringify({ ...shipped, name: '' }), 'ELDR_FILE_BAD_METADATA', 'name'],
    [JSON.stringify({ ...shipped, kv: undefined }), 'ELDR_FILE_BAD_METADATA', 'kv'],
    [withChange('shape', { layers: 0 }), 'ELDR_FILE_BAD_METADATA', 'shape.layers 0'],
    [withChange('shape', { topK: 129 }), 'ELDR_FILE_BAD_METADATA', 'shape.topK 129'],
    [withChange('decode', { kind: 'cubic' }), 'ELDR_FILE_BAD_METADATA', 'decode.kind'],
    [withChange('decode', { perRequestUs: -1 }), 'ELDR_FILE_BAD_METADATA', 'decode.perRequestUs -1'],
    [withWindows(null), 'ELDR_FILE_BAD_METADATA', 'decode.windows null'],
    [
      withWindows({ tokens: 128, perContextKTokenUs: 1 }),
      'ELDR_FILE_BAD_METADATA',
      'a list of at most 8 objects',
    ],
    [
      withWindows(Array.from({ length: 9 }, () => window)),
      'ELDR_FILE_BAD_METADATA',
      'a list of at most 8 objects',
    ],
    [withWindows([window, 128]), 'ELDR_FILE_BAD_METADATA', 'decode.windows[1] 128'],
    [withWindows([{ perContextKTokenUs: 1 }]), 'ELDR_FILE_BAD_METADATA', 'no decode.windows[0].tokens'],
    [withWindows([{ ...window, tokens: 0 }]), 'ELDR_FILE_BAD_METADATA', 'decode.windows[0].tokens 0'],
    [withWindows([{ ...window, tokens: -128 }]), 'ELDR_FILE_BAD_METADATA', 'decode.windows[0].tokens -128'],
    [withWindows([{ ...window, tokens: 127.5 }]), 'ELDR_FILE_BAD_METADATA', 'decode.windows[0].tokens 127.5'],
    [withWindows([{ ...window, tokens: '128' }]), 'ELDR_FILE_BAD_METADATA', 'decode.windows[0].tokens "128"'],
    [withWindows([{ tokens: 128 }]), 'ELDR_FILE_BAD_METADATA', 'no decode.windows[0].perContextKTokenUs'],
    [
      withWindows([window, { ...window, perContextKTokenUs: -1 }]),
      'ELDR_FILE_BAD_METADATA',
      'decode.windows[1].perContextKTokenUs -1',
    ],
    [
      withWindows([{ ...window, perContextKTokenUs: null }]),
      'ELDR_FILE_BAD_METADATA',
      'decode.windows[0].perContextKTokenUs null',
    ],
    [withHost({ baseUs: -1 }), 'ELDR_FILE_BAD_METADATA', 'decode.host.baseUs -1'],
    [withHost({ perRequestUs: null }), 'ELDR_FILE_BAD_METADATA', 'decode.host.perRequestUs null'],
    [withHost({ overlaps: 1 }), 'ELDR_FILE_BAD_METADATA', 'decode.host.overlaps 1'],
    [withSharing({ capacity: 0.9 }), 'ELDR_FILE_BAD_METADATA', 'decode.sharing.capacity 0.9'],
    [withSharing({ by: 'time' }), 'ELDR_FILE_BAD_METADATA', 'decode.sharing.by "time"'],
    [withChange('decode', { noise: 1 }), 'ELDR_FILE_BAD_METADATA', 'decode.noise 1'],
    [withFactors([1]), 'ELDR_FILE_BAD_METADATA', '2 to 101 ascending numbers'],
    [withFactors([1, 0.9]), 'ELDR_FILE_BAD_METADATA', 'decode.noise.factors'],
    [withFactors([0, 1]), 'ELDR_FILE_BAD_METADATA', 'decode.noise.factors'],
    [withFactors([1, '2']), 'ELDR_FILE_BAD_METADATA', 'decode.noise.factors'],
    [withChange('prefill', { baseUs: '8' }), 'ELDR_FILE_BAD_METADATA', 'prefill.baseUs "8"'],
    [withChange('kv', { gigabytesPerSecond: 0 }), 'ELDR_FILE_BAD_METADATA', 'kv.gigabytesPerSecond 0'],
    [withChange('provenance', { notes: [1] }), 'ELDR_FILE_BAD_METADATA', 'provenance.notes'],
    [withChange('provenance', { date: 3 }), 'ELDR_FILE_BAD_METADATA', 'provenance.date'],
  ])('is rejected with the reason: %.60s', async (text, code, found) => {
    const error = await failure('p.json', () => parseProfile('p.json', text))
    expect(error.code).toBe(code)
    expect(error.message).toContain(found)
  })
})
