/**
 * Numbers for readers: few digits, independent of the machine's locale (reports must be the same everywhere),
 * a real minus sign, and a dash for a missing number.
 */

const NONE = '–'

/**
 * A position in SVG units, to hundredths. Values that are not finite become 0; callers drop such data first.
 */
export function coordinate(value: number): string {
  if (!Number.isFinite(value)) return '0'
  const rounded = Math.round(Math.max(-1e6, Math.min(1e6, value)) * 100) / 100
  return String(rounded === 0 ? 0 : rounded)
}

export function fixed(value: number | undefined, digits: number): string {
  if (value === undefined || !Number.isFinite(value)) return NONE
  if (Math.abs(value) >= 1e15) return signed(value.toExponential(2))
  const shown = value.toFixed(digits)
  const [units, fraction] = (Number(shown) === 0 ? shown.replace('-', '') : shown).split('.')
  const grouped = units!.replace(/\B(?=(\d{3})+$)/g, ',')
  return signed(fraction === undefined ? grouped : `${grouped}.${fraction}`)
}

export function whole(value: number | undefined): string {
  return fixed(value, 0)
}

/** A share as a percentage, with a non-breaking space before the unit. */
export function percent(share: number | undefined, digits = 0): string {
  if (share === undefined || !Number.isFinite(share)) return NONE
  if (share > 0 && share * 100 < 0.5 * 10 ** -digits) return `<\u00a0${fixed(10 ** -digits, digits)}\u00a0%`
  return `${fixed(share * 100, digits)}\u00a0%`
}

/** As many digits as needed to distinguish neighbouring ticks. */
export function tickLabel(value: number, step: number): string {
  const magnitude = Math.max(Math.abs(value), step)
  if (magnitude >= 1e7 || step < 1e-6)
    return value === 0 ? '0' : signed(Number(value.toPrecision(3)).toExponential())
  return fixed(value, Math.max(0, -Math.floor(Math.log10(step) + 1e-9)))
}

/** A duration with at most three digits. */
export function duration(ms: number): string {
  if (!Number.isFinite(ms)) return NONE
  if (ms < 9.95) return `${fixed(ms, 1)}\u00a0ms`
  if (ms < 999.5) return `${fixed(ms, 0)}\u00a0ms`
  if (ms < 99_950) return `${fixed(ms / 1000, ms < 9995 ? 2 : 1)}\u00a0s`
  const seconds = Math.round(ms / 1000)
  return `${whole(Math.floor(seconds / 60))}\u00a0min ${seconds % 60}\u00a0s`
}

/** `3 layers`, `1 layer`. */
export function many(count: number, one: string, several = `${one}s`): string {
  return `${whole(count)} ${count === 1 ? one : several}`
}

/** Sorted whole numbers with runs joined: `0, 3–5, 9`. */
export function runs(values: readonly number[]): string {
  const parts: string[] = []
  for (let i = 0; i < values.length; i++) {
    const from = i
    while (i + 1 < values.length && values[i + 1] === values[i]! + 1) i++
    const first = whole(values[from])
    if (i === from) parts.push(first)
    else if (i === from + 1) parts.push(first, whole(values[i]))
    else parts.push(`${first}–${whole(values[i])}`)
  }
  return parts.join(', ')
}

/**
 * At most `length` characters, with an ellipsis if cut. Counts characters, not code units, so that none is
 * split.
 */
export function clipped(text: string, length: number): string {
  if (text.length <= length) return text
  const characters = Array.from(text)
  return characters.length <= length ? text : `${characters.slice(0, Math.max(0, length - 1)).join('')}…`
}

function signed(text: string): string {
  return text.replaceAll('-', '−')
}
