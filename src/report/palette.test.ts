import { describe, expect, it } from 'vitest'
import { DARK, groupColour, groupShape, LIGHT } from './palette.ts'

type Vector = readonly [number, number, number]
const times = (m: readonly Vector[], [x, y, z]: Vector): Vector =>
  m.map(([a, b, c]) => a * x + b * y + c * z) as unknown as Vector

function linear(hex: string): Vector {
  const channel = (at: number) => Number.parseInt(hex.slice(at, at + 2), 16) / 255
  return [1, 3, 5]
    .map(channel)
    .map(c => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)) as unknown as Vector
}

/** WCAG 2 contrast. */
function contrast(a: string, b: string): number {
  const luminance = (hex: string) =>
    linear(hex).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i]!, 0)
  const [dark, light] = [luminance(a), luminance(b)].sort((x, y) => x - y)
  return (light! + 0.05) / (dark! + 0.05)
}

/** Oklab, in which distance is about what the eye sees. */
function oklab(rgb: Vector): Vector {
  const lms = times(
    [
      [0.4122214708, 0.5363325363, 0.0514459929],
      [0.2119034982, 0.6806995451, 0.1073969566],
      [0.0883024619, 0.2817188376, 0.6299787005],
    ],
    rgb,
  )
  const cube = lms.map(c => Math.cbrt(Math.max(0, c))) as unknown as Vector
  return times(
    [
      [0.2104542553, 0.793617785, -0.0040720468],
      [1.9779984951, -2.428592205, 0.4505937099],
      [0.0259040371, 0.7827717662, -0.808675766],
    ],
    cube,
  )
}

/** Machado, Oliveira, Fernandes 2009, severity 1, on linear RGB. */
const VISION: Readonly<Record<string, readonly Vector[]>> = {
  full: [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ],
  protanopia: [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  deuteranopia: [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
  tritanopia: [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039],
  ],
}

describe.each([
  ['light', LIGHT],
  ['dark', DARK],
] as const)('the %s theme', (_, theme) => {
  it('has enough contrast between group colours or text and the background', () => {
    for (const colour of theme.groups) expect(contrast(colour, theme.surface)).toBeGreaterThanOrEqual(3)
    for (const colour of [theme.ink, theme.muted, theme.accent]) {
      expect(contrast(colour, theme.surface)).toBeGreaterThanOrEqual(4.5)
      expect(contrast(colour, theme.page)).toBeGreaterThanOrEqual(4.5)
    }
  })

  it.each(Object.keys(VISION))('keeps every pair of groups apart for %s colour vision', vision => {
    const seen = theme.groups.map(hex =>
      oklab(times(VISION[vision]!, linear(hex)).map(c => Math.min(1, Math.max(0, c))) as unknown as Vector),
    )
    const distances = seen.flatMap((a, i) =>
      seen.slice(i + 1).map(b => Math.hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2])),
    )
    expect(Math.min(...distances)).toBeGreaterThan(0.06) // a just noticeable difference is about 0.02
  })
})

describe('groups', () => {
  it('differ in colour or shape up to 36', () => {
    const looks = Array.from({ length: 36 }, (_, group) => groupColour(group) + groupShape(group))
    expect(new Set(looks).size).toBe(36)
  })

  it('have a neutral colour for group −1', () => {
    expect(groupColour(-1)).toBe('var(--muted)')
  })
})
