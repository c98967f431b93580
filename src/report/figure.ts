/** A chart as a file of its own: styles for light and dark pages, background, legend and content. */
import type { Markup } from './markup.ts'
import { DARK, groupColour, LIGHT, themeProperties } from './palette.ts'

const FONT = 'system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif'
const STYLE = `
:root{${themeProperties(LIGHT)}}
@media (prefers-color-scheme:dark){:root{${themeProperties(DARK)}}}
text{font-family:${FONT};font-size:12px;fill:var(--ink)}
.tick,.quiet{fill:var(--muted)}
.strong{font-weight:700}
.halo{paint-order:stroke;stroke:var(--surface);stroke-width:4px;stroke-linejoin:round}
.gridline{stroke:var(--grid)}
.axis{stroke:var(--muted)}
.rule{stroke:var(--muted);stroke-width:1.2;stroke-dasharray:5 4}
.line{fill:none;stroke-width:2;stroke-linejoin:round}
.line.dashed{stroke-dasharray:6 4}
.mark{stroke:var(--surface);stroke-width:.6}
.band{fill-opacity:.18}
.star,.peak{stroke:var(--surface)}
.box{fill:var(--page);stroke:var(--line);stroke-width:1.2}
.box.main{stroke:var(--accent);stroke-width:2}
.arrow{fill:none;stroke:var(--muted);stroke-width:1.5}
.tip{fill:var(--muted)}
.off{fill:var(--grid)}
.on{fill:var(--accent)}
.all{fill:var(--star)}
`
const SCATTER_STYLE = `.dots{fill:none;stroke-linecap:round}
`
const LEGEND_WIDTH = 230

interface Words {
  readonly title: string
  readonly description: string
}

/** `body`: a chart, 460 units wide. `legend`: names of its groups, in order. */
export function figureOf({
  title,
  description,
  legend,
  body,
}: Words & { readonly legend: readonly string[]; readonly body: Markup }): string {
  const [, width, height] = /viewBox="0 0 (\d+) (\d+)"/.exec(body.markup)!.map(Number)
  const rows = Math.ceil(legend.length / 2)
  const top = 14 + rows * 20
  const entries = legend.map((label, i) => {
    const [x, y] = [14 + (i % 2) * LEGEND_WIDTH, 18 + Math.floor(i / 2) * 20]
    return `<rect x="${x}" y="${y - 9}" width="14" height="10" rx="2" fill="${groupColour(i)}"/><text x="${x + 20}" y="${y}">${escaped(label)}</text>`
  })
  const inner = body.markup.replace('<svg ', `<svg x="10" y="${top}" width="${width}" height="${height}" `)
  return framed({
    title,
    description,
    width: width! + 20,
    height: top + height! + 10,
    content: entries.join('') + inner,
  })
}

export function framed({
  title,
  description,
  width,
  height,
  content,
}: Words & { readonly width: number; readonly height: number; readonly content: string }): string {
  const style = content.includes('class="dots"') ? STYLE + SCATTER_STYLE : STYLE
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img">
<title>${escaped(title)}</title>
<desc>${escaped(description)}</desc>
<style>${style}</style>
<rect width="${width}" height="${height}" rx="8" fill="var(--surface)"/>
${content}
</svg>
`
}

export const escaped = (text: string): string => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;')
