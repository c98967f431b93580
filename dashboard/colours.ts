/**
 * Colours of the style sheet for canvases, and the colours of workers and policies, which are the same on
 * every view.
 */
import { decoderIds, reducedMotion, scheme, welcome } from './state.ts'

const GROUPS = 12

export function css(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim()
}

/** Red, green and blue of a colour given as #rrggbb in the style sheet. */
export function rgb(name: string): readonly [number, number, number] {
  const hex = css(name)
  return [1, 3, 5].map(at => Number.parseInt(hex.slice(at, at + 2), 16)) as unknown as [
    number,
    number,
    number,
  ]
}

/** Colours go to decode workers in order; all others are grey. */
export function workerGroup(id: string): string {
  const at = decoderIds.value.indexOf(id)
  return at < 0 ? 'muted' : `group-${at % GROUPS}`
}

export function policyGroup(policy: string): string {
  const at = welcome.value?.policies?.indexOf(policy) ?? -1
  return at < 0 ? 'muted' : `group-${POLICY_COLOURS[at % POLICY_COLOURS.length]}`
}

/** Policies that are often compared have the most different colours. */
const POLICY_COLOURS = [11, 3, 1, 9, 7, 0, 4]

export function watchScheme(): void {
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => scheme.value++)
  const motion = matchMedia('(prefers-reduced-motion: reduce)')
  reducedMotion.value = motion.matches
  motion.addEventListener('change', () => (reducedMotion.value = motion.matches))
}
