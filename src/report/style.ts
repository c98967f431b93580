/**
 * The style sheet of all pages: two themes through custom properties, system fonts, one or two columns by
 * width, and print (always in the light theme). Classes under `.chart` are used by the chart files.
 */
import { DARK, LIGHT, themeProperties } from './palette.ts'

/**
 * A shadow at each edge with more content to scroll to: two shadows are fixed to the box, and two covers
 * above them move with the content and hide the shadow where the content ends.
 */
const SCROLL_EDGES = [
  'linear-gradient(to right,var(--surface) 30%,transparent) left/36px 100% no-repeat local',
  'linear-gradient(to left,var(--surface) 30%,transparent) right/36px 100% no-repeat local',
  'linear-gradient(to right,var(--edge),transparent) left/14px 100% no-repeat',
  'linear-gradient(to left,var(--edge),transparent) right/14px 100% no-repeat',
].join(',')

export const STYLE = `
:root{color-scheme:light;--edge:rgba(27,32,39,.34);${themeProperties(LIGHT)}}
@media screen and (prefers-color-scheme:dark){:root{color-scheme:dark;--edge:rgba(231,234,239,.38);${themeProperties(DARK)}}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif;overflow-wrap:anywhere;-webkit-text-size-adjust:100%;text-size-adjust:100%}
main,header.top,footer{max-width:1180px;margin:0 auto;padding:0 24px}
header.top{padding-top:36px}
h1{font-size:1.9rem;line-height:1.2;margin:.1em 0 .4em;text-wrap:balance}
h2{font-size:1.3rem;margin:2.6rem 0 .3rem}
h3{font-size:1.02rem;line-height:1.35;margin:0 0 .2rem}
p{margin:.3rem 0 .7rem}
small,.quiet,figcaption{color:var(--muted)}
code,.mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.9em}
.eyebrow{color:var(--accent);font-weight:600;font-size:.85rem;letter-spacing:.04em;margin:0}
.lede{font-size:1.15rem;max-width:62rem}
.why{max-width:62rem}
.intro{max-width:52rem;color:var(--muted)}
.card{background:var(--surface);border:1px solid var(--line);border-radius:10px;padding:18px 20px;margin:0;min-width:0}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,440px),1fr));gap:20px;align-items:stretch;margin-top:16px}
.grid.loose{align-items:start}
.grid>.wide{grid-column:1/-1}
dl.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,240px),1fr));gap:12px 24px;margin:20px 0 0}
dl.facts dt{color:var(--muted);font-size:.8rem}
dl.facts dd{margin:0;font-size:.95rem}
dl.facts div.long{grid-column:span 2}
dl.facts.small{grid-template-columns:repeat(auto-fill,minmax(64px,1fr));gap:6px 10px;margin:10px 0 0;font-variant-numeric:tabular-nums}
h4{font-size:.92rem;line-height:1.35;margin:.2rem 0 .2rem}
a{color:var(--accent)}
.contents{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,200px),1fr));gap:8px 24px;margin-top:22px;padding-top:14px;border-top:1px solid var(--line);font-size:.9rem}
.contents p{margin:0;font-weight:600}
.contents ul{list-style:none;margin:0;padding:0}
.contents a{display:block;padding:2px 0}
.card:target{border-color:var(--accent)}
.exhibit{scroll-margin-top:12px}
.panels{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,380px),1fr));gap:18px 28px;align-items:start}
.panel{min-width:0}
.panel.full{grid-column:1/-1}
.panel>.quiet{font-size:.85rem;margin:.3rem 0 0}
.exhibit tbody th{min-width:7.5rem;max-width:18rem;overflow-wrap:anywhere}
.remarks{font-size:.9rem;max-width:62rem;margin:.9rem 0 0;padding-left:1.2em}
.remarks li{margin:.3rem 0}
.paper{font-size:.9rem;margin:.9rem 0 0;padding-left:12px;border-left:3px solid var(--line)}
.notes{border-left:4px solid var(--accent);margin-top:20px}
.notes ul{margin:.3rem 0 0;padding-left:1.2em}
figure .finding{margin:0 0 .5rem;font-size:.95rem}
figcaption{font-size:.85rem;line-height:1.45;padding-top:10px}
figcaption p{margin:0}
.scroll{overflow-x:auto;background:${SCROLL_EDGES}}
.scroll.tall{max-height:34rem;overflow-y:auto}
.tall thead th{position:sticky;top:0;background:var(--surface)}
.scroll:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:2px 14px;margin:.1rem 0 .5rem;padding:0;font-size:.85rem}
.legend li{display:flex;gap:6px;align-items:baseline;min-width:0}
.swatch{width:18px;height:14px;flex:none;position:relative;top:2px}
table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}
caption{text-align:left;padding:0 0 6px}
th,td{padding:5px 10px;text-align:left;vertical-align:middle;border-bottom:1px solid var(--grid)}
th:first-child,td:first-child{padding-left:2px}
thead th{color:var(--muted);font-weight:600;font-size:.8rem;border-bottom:1px solid var(--line);vertical-align:bottom}
tbody th{font-weight:600}
tfoot th,tfoot td{font-weight:600;border-top:1px solid var(--line);border-bottom:0}
th.number,td.number{text-align:right}
tbody .number,tfoot .number{white-space:nowrap}
.scroll table{overflow-wrap:normal}
td.parts{width:62%;min-width:150px}
.parts div{display:flex;flex-wrap:wrap;align-items:center;gap:2px 16px}
.parts div>*{flex:1 1 150px;min-width:0;overflow-wrap:anywhere;font-size:.85rem}
footer{margin-top:3rem;padding-bottom:3rem;font-size:.85rem;color:var(--muted)}
.chart{display:block;width:100%;height:auto;max-width:640px;margin:4px 0 0}
.chart.wide{min-width:680px;max-width:none}
.chart text,.stack text{font-family:inherit;fill:var(--ink)}
.chart .tick,.chart .quiet{fill:var(--muted)}
.chart .label,.chart .value{fill:var(--ink)}
.chart .heading{fill:var(--muted);font-weight:600}
.chart .strong,.chart .starred .name,.chart .starred .value{font-weight:700}
.chart .halo{paint-order:stroke;stroke:var(--surface);stroke-width:4px;stroke-linejoin:round}
.chart .gridline{stroke:var(--grid);stroke-width:1}
.chart .axis{stroke:var(--muted);stroke-width:1}
.chart .frame{fill:none;stroke:var(--line)}
.chart .rule{stroke:var(--muted);stroke-width:1.2;stroke-dasharray:5 4}
.line{fill:none;stroke-width:2;stroke-linejoin:round}
.line.dashed{stroke-dasharray:6 4}
.chart .mark{stroke:var(--surface);stroke-width:.6}
.chart .unseen{fill-opacity:0}
.chart .band{fill-opacity:.18}
.hollow{fill-opacity:.14;stroke-width:1.2;stroke-dasharray:3 2}
.chart .whisker{fill:none;stroke:var(--ink);stroke-width:1.4}
.star{fill:var(--star)}
.star,.chart .peak{stroke:var(--surface);stroke-width:1}
.chart .dots{fill:none;stroke-linecap:round}
.centroid{fill:var(--surface);stroke:var(--ink);stroke-width:1.5}
.chart .number{font-weight:700}
.chart .leader{stroke:var(--ink);stroke-width:1}
.chart .place{fill:var(--ink)}
.chart .cells{fill:var(--heat);shape-rendering:crispEdges}
.chart .nothing{fill:none;stroke:var(--line);stroke-dasharray:4 4}
.stack{display:block;width:100%;height:14px;border-radius:3px}
.stack rect{shape-rendering:crispEdges}
.again{fill:var(--surface)}
@media (max-width:560px){
main,header.top,footer{padding:0 14px}
header.top{padding-top:22px}
h1{font-size:1.5rem}
.lede{font-size:1.05rem}
.card{padding:14px 10px}
dl.facts:not(.small){grid-template-columns:1fr 1fr;gap:10px 16px}
th,td{padding:5px 6px}
td.parts{min-width:110px}
.exhibit tbody th{max-width:9rem}
.parts div>*{flex-basis:110px}
}
@media print{
@page{margin:14mm}
html{font-size:78%}
body{background:none;font-size:1rem}
main,header.top,footer{max-width:none;padding:0}
.grid{grid-template-columns:1fr 1fr}
.card{break-inside:avoid;border-color:#bbb}
.grid>.table{grid-column:1/-1;break-inside:auto}
tfoot{display:table-row-group}
tr{break-inside:avoid}
.tall thead th{position:static}
h2,h3,.intro,.finding,.legend,thead{break-after:avoid}
.scroll,.scroll.tall{overflow:visible;max-height:none;background:none}
.chart.wide{min-width:0}
.chart{max-width:none}
svg{print-color-adjust:exact;-webkit-print-color-adjust:exact}
}
`
