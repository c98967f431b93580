/** Interpolates between the two nearest values, as NumPy does by default. NaN without values. */
export function quantileOf(sorted: Float64Array, share: number): number {
  if (sorted.length === 0) return NaN
  const place = share * (sorted.length - 1)
  const low = sorted[Math.floor(place)]!
  return low + (sorted[Math.ceil(place)]! - low) * (place - Math.floor(place))
}
