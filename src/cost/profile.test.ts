import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import * as fc from 'fast-check'
import { afterAll, describe, expect, it } from 'vitest'
import { failure, temporaryFolder } from '../../test/trace-support.ts'
import { layerWeights, prefillUs, stepUs, transferUs } from './profile.ts'
import { loadProfile, parseProfile, profileNames } from './profile-file.ts'

const folder = temporaryFolder()
afterAll(() => folder.remove())
const first = await loadProfile('h200-first')
const shipped = JSON.parse(readFileSync(new URL('../../profiles/h200-first.json', import.meta.url), 'utf8')) as Record<string, object>

describe('a cost profile', () => {
  it('h200-first has the step cost of the prototype: 48 × 28 µs + 25 µs a request, and 28 µs + 3.1 µs an expert in each layer', () => {
    const prototypeUs = (batch: number, active: number) => 48 * 28 + 25 * batch + 48 * (28 + 3.1 * active)
    for (const [batch, active] of [
      [1, 8],
      [35, 83.6],
      [256, 128],
    ] as const) {
      expect(stepUs(first, batch, active, 1e6)).toBeCloseTo(prototypeUs(batch, active), 9)
    }
  })

  it('charges context by the thousand tokens of the whole batch', () => {
    const profile = { ...first, decode: { ...first.decode, perContextKTokenUs: 2 } }
    expect(stepUs(profile, 4, 20, 5_000) - stepUs(profile, 4, 20, 0)).toBeCloseTo(10)
  })

  it('reads a prompt by its tokens and moves its cache by its bytes', () => {
    expect(prefillUs(first, 400)).toBe(8_000 + 25 * 400)
    expect(transferUs(first, 1_000)).toBeCloseTo(1_000 + (98_304 * 1_000) / 50e9 / 1e-6)
  })

  it('lays a trace over its layers: layer l takes ⌊l·L_trace/L_profile⌋, and the weights are the shares taken', () => {
    expect(Array.from(layerWeights(48, 16))).toEqual(Array.from({ length: 16 }, () => 3 / 48))
    expect(Array.from(layerWeights(2, 4))).toEqual([0.5, 0, 0.5, 0])
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 99 }), fc.array(fc.nat({ max: 128 }), { minLength: 1, maxLength: 99 }), (layers, active) => {
        const taken = Array.from({ length: layers }, (_, l) => active[Math.floor((l * active.length) / layers)]!)
        const weighted = layerWeights(layers, active.length).reduce((sum, weight, l) => sum + weight * active[l]!, 0)
        expect(weighted).toBeCloseTo(taken.reduce((a, b) => a + b, 0) / layers, 9)
      }),
    )
  })
})

describe('a profile file', () => {
  const withChange = (key: string, change: object) => JSON.stringify({ ...shipped, [key]: { ...shipped[key], ...change } })

  it('goes by its name when it ships, and by its path otherwise', async () => {
    expect(await profileNames()).toContain('h200-first')
    const path = join(folder.path, 'mine.json')
    writeFileSync(path, JSON.stringify({ ...shipped, name: 'mine' }))
    expect(await loadProfile(path)).toEqual({ ...first, name: 'mine' })
  })

  it('says which names there are when it does not know one, and which file it cannot read', async () => {
    expect((await failure('h200-frist', () => loadProfile('h200-frist'))).message).toContain('h200-first')
    expect((await failure('nowhere.json', () => loadProfile('nowhere.json'))).code).toBe('ELDR_FILE_UNREADABLE')
  })

  it('states what is assumed', () => {
    expect(first.provenance.notes.filter(note => note.startsWith('Assumed')).length).toBeGreaterThanOrEqual(3)
    for (const { provenance } of [first]) expect(provenance.what).not.toBe('')
  })

  it.each([
    ['{', 'ELDR_FILE_WRONG_KIND', 'no JSON'],
    ['[]', 'ELDR_FILE_BAD_METADATA', 'an object'],
    ['{}', 'ELDR_FILE_WRONG_KIND', 'without a format'],
    [JSON.stringify({ ...shipped, format: 'eldr.profile.v2' }), 'ELDR_FILE_UNKNOWN_VERSION', 'eldr.profile.v2'],
    [JSON.stringify({ ...shipped, format: 'eldr.trace.v1' }), 'ELDR_FILE_WRONG_KIND', 'eldr.trace.v1'],
    [JSON.stringify({ ...shipped, name: '' }), 'ELDR_FILE_BAD_METADATA', 'name'],
    [JSON.stringify({ ...shipped, kv: undefined }), 'ELDR_FILE_BAD_METADATA', 'kv'],
    [withChange('shape', { layers: 0 }), 'ELDR_FILE_BAD_METADATA', 'shape.layers 0'],
    [withChange('shape', { topK: 129 }), 'ELDR_FILE_BAD_METADATA', 'shape.topK 129'],
    [withChange('decode', { kind: 'cubic' }), 'ELDR_FILE_BAD_METADATA', 'decode.kind'],
    [withChange('decode', { perRequestUs: -1 }), 'ELDR_FILE_BAD_METADATA', 'decode.perRequestUs -1'],
    [withChange('prefill', { baseUs: '8' }), 'ELDR_FILE_BAD_METADATA', 'prefill.baseUs "8"'],
    [withChange('kv', { gigabytesPerSecond: 0 }), 'ELDR_FILE_BAD_METADATA', 'kv.gigabytesPerSecond 0'],
    [withChange('provenance', { notes: [1] }), 'ELDR_FILE_BAD_METADATA', 'provenance.notes'],
    [withChange('provenance', { date: 3 }), 'ELDR_FILE_BAD_METADATA', 'provenance.date'],
  ])('is refused with the reason: %.60s', async (text, code, found) => {
    const error = await failure('p.json', () => parseProfile('p.json', text))
    expect(error.code).toBe(code)
    expect(error.message).toContain(found)
  })
})
