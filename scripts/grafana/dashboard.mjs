// Grafana's JSON around the rows: variables, places on the grid, and what all panels share.
import { gateway } from './gateway-row.mjs'
import { overview } from './overview-row.mjs'
import { routing } from './routing-row.mjs'
import { workers } from './workers-row.mjs'

/** Of Grafana 11.6; later ones read it and bring it up to date. */
const SCHEMA_VERSION = 41
const WIDTH = 24
const SOURCE = { type: 'prometheus', uid: '${datasource}' }

export function dashboard() {
  return {
    uid: 'eldr',
    title: 'ELDR',
    description:
      'The ELDR gateway and its workers. Made by scripts/grafana.mjs; docs/reference/metrics.md says what each metric means.',
    tags: ['eldr', 'llm'],
    schemaVersion: SCHEMA_VERSION,
    version: 1,
    editable: true,
    graphTooltip: 1,
    refresh: '10s',
    time: { from: 'now-1h', to: 'now' },
    timepicker: {},
    timezone: 'browser',
    fiscalYearStartMonth: 0,
    links: [],
    annotations: { list: [ALERTS_ANNOTATION] },
    templating: { list: VARIABLES },
    panels: placed([overview, routing, workers, gateway]),
  }
}

const ALERTS_ANNOTATION = {
  name: 'Alerts',
  datasource: SOURCE,
  enable: true,
  hide: false,
  iconColor: 'red',
  expr: 'ALERTS{alertname=~"Eldr.*", alertstate="firing"}',
  titleFormat: '{{alertname}}',
  textFormat: '{{instance}} {{worker}}',
  step: '30s',
}

const query = (name, label, expr, more = {}) => ({
  name,
  label,
  type: 'query',
  datasource: SOURCE,
  definition: expr,
  query: { query: expr, refId: `variable-${name}` },
  refresh: 2,
  sort: 1,
  multi: true,
  includeAll: true,
  allValue: '.*',
  current: { selected: true, text: ['All'], value: ['$__all'] },
  options: [],
  regex: '',
  hide: 0,
  skipUrlSync: false,
  ...more,
})

const VARIABLES = [
  {
    name: 'datasource',
    label: 'Data source',
    type: 'datasource',
    query: 'prometheus',
    current: { selected: false, text: '', value: '' },
    options: [],
    refresh: 1,
    regex: '',
    multi: false,
    includeAll: false,
    hide: 0,
    skipUrlSync: false,
  },
  query('job', 'Job', 'label_values(eldr_build_info, job)'),
  query('instance', 'Gateway', 'label_values(eldr_build_info{job=~"$job"}, instance)'),
  query('worker', 'Worker', 'label_values(eldr_worker_state{job=~"$job", instance=~"$instance"}, worker)'),
]

/** Rows below each other; panels side by side until a line is full. */
function placed(rows) {
  let id = 0
  let y = 0
  return rows.flatMap(({ title, panels }) => {
    const row = {
      id: ++id,
      type: 'row',
      title,
      collapsed: false,
      gridPos: { h: 1, w: WIDTH, x: 0, y: y++ },
      panels: [],
    }
    let x = 0
    let lineHeight = 0
    const all = panels.map(panel => {
      const { width: w, height: h } = panel
      if (x + w > WIDTH) {
        x = 0
        y += lineHeight
        lineHeight = 0
      }
      const gridPos = { h, w, x, y }
      x += w
      lineHeight = Math.max(lineHeight, h)
      return panelOf(panel, ++id, gridPos)
    })
    y += lineHeight
    return [row, ...all]
  })
}

function panelOf(
  { title, kind, unit, text, queries, max, thresholds, mappings, stacked, decimals, signed },
  id,
  gridPos,
) {
  const steps = [
    { color: 'green', value: null },
    ...(thresholds ?? []).map(([value, color]) => ({ color, value })),
  ]
  const fieldConfig = {
    defaults: {
      unit,
      ...(signed !== true && { min: 0 }),
      ...(max !== undefined && { max }),
      ...(decimals !== undefined && { decimals }),
      color: { mode: kind === 'stat' ? 'thresholds' : 'palette-classic' },
      thresholds: { mode: 'absolute', steps },
      mappings: mappings === undefined ? [] : [{ type: 'value', options: mappings }],
      ...(kind === 'timeseries' && { custom: drawn(stacked) }),
    },
    overrides: [],
  }
  const targets = queries.map(({ expr, legend, instant }, at) => ({
    refId: String.fromCharCode(65 + at),
    datasource: SOURCE,
    editorMode: 'code',
    expr,
    legendFormat: legend ?? '',
    range: instant !== true,
    instant: instant === true,
  }))
  return {
    id,
    type: kind,
    title,
    description: text,
    datasource: SOURCE,
    gridPos,
    fieldConfig,
    options: OPTIONS[kind],
    targets,
  }
}

const drawn = stacked => ({
  drawStyle: 'line',
  lineWidth: 1,
  fillOpacity: stacked ? 30 : 5,
  showPoints: 'never',
  spanNulls: false,
  stacking: { mode: stacked ? 'normal' : 'none', group: 'A' },
})

const OPTIONS = {
  stat: {
    reduceOptions: { calcs: ['lastNotNull'], fields: '', values: false },
    colorMode: 'value',
    graphMode: 'area',
    justifyMode: 'auto',
    orientation: 'auto',
    textMode: 'auto',
  },
  timeseries: {
    legend: { displayMode: 'list', placement: 'bottom', showLegend: true, calcs: [] },
    tooltip: { mode: 'multi', sort: 'desc' },
  },
  'state-timeline': {
    legend: { displayMode: 'list', placement: 'bottom', showLegend: true },
    tooltip: { mode: 'single', sort: 'none' },
    mergeValues: true,
    showValue: 'auto',
    alignValue: 'left',
    rowHeight: 0.9,
  },
}
