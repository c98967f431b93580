/**
 * Colours and marker shapes. Groups (domains, policies) get one of twelve colours, chosen by search so that
 * every pair is distinct for normal and three kinds of deficient colour vision, with a contrast of at least
 * 3:1 to the background; tests measure both. Colour is never the only cue: every sixth group changes the
 * marker's shape, and names or numbers are beside it.
 */
export const LIGHT = {
  page: '#f6f7f9',
  surface: '#ffffff',
  ink: '#1b2027',
  muted: '#566070',
  line: '#d5dae1',
  grid: '#e6e9ee',
  accent: '#0b5cad',
  heat: '#0a3d7a',
  star: '#b3261e',
  groups: [
    '#0475df',
    '#b8881c',
    '#06a679',
    '#672701',
    '#cb1fb1',
    '#0d4e73',
    '#4300a3',
    '#795b02',
    '#8c2643',
    '#598151',
    '#dc6bbf',
    '#326d8a',
  ],
} as const

export const DARK = {
  page: '#0f1216',
  surface: '#15181d',
  ink: '#e7eaef',
  muted: '#a3adbb',
  line: '#343b45',
  grid: '#262c34',
  accent: '#79b4f5',
  heat: '#8cc4ff',
  star: '#ff8a70',
  groups: [
    '#779efd',
    '#fdd25c',
    '#0a8d72',
    '#fd8819',
    '#cb31bf',
    '#87cffa',
    '#8664fd',
    '#9f6f00',
    '#fe1872',
    '#9ac28c',
    '#cc80bb',
    '#e2e8eb',
  ],
} as const

export const COLOURS: number = LIGHT.groups.length

export const SHAPES = ['circle', 'diamond', 'triangle', 'square', 'cross', 'bar'] as const
export type Shape = (typeof SHAPES)[number]

/** Group −1 (“unknown” or “the rest”) has the neutral colour. */
export function groupColour(group: number): string {
  return group < 0 ? 'var(--muted)' : `var(--group-${group % COLOURS})`
}

/** True if an earlier group has the same colour. Areas, which have no shapes, are then marked with a line. */
export function isRepeated(group: number): boolean {
  return group >= COLOURS
}

export function groupShape(group: number): Shape {
  return group < 0 ? 'circle' : SHAPES[Math.floor(group / 6) % SHAPES.length]!
}

/** CSS custom properties of one theme. */
export function themeProperties(theme: typeof LIGHT | typeof DARK): string {
  const { groups, ...named } = theme
  const properties = [...Object.entries(named), ...groups.map((colour, i) => [`group-${i}`, colour] as const)]
  return properties.map(([name, value]) => `--${name}:${value}`).join(';')
}
