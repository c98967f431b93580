// Diagrams without data, for docs/start/concepts.md.
import { escaped, framed } from '../../dist/report/figure.js'

const text = (x, y, words, { anchor = 'middle', kind = '' } = {}) =>
  `<text x="${x}" y="${y}" text-anchor="${anchor}" class="${kind}">${escaped(words)}</text>`

/** A box with lines of text; the first line is its name. */
function box([x, y, width, height], [name, ...lines], kind = '') {
  const from = y + height / 2 - lines.length * 8 + 4
  const words = [
    text(x + width / 2, from, name, { kind: 'strong' }),
    ...lines.map((line, i) => text(x + width / 2, from + 17 * (i + 1), line, { kind: 'quiet' })),
  ]
  return `<rect x="${x}" y="${y}" width="${width}" height="${height}" rx="7" class="box ${kind}"/>${words.join('')}`
}

/** Straight segments; the last has the arrowhead. */
function arrow(...points) {
  const [[x0, y0], [x1, y1]] = points.slice(-2)
  const turn = (Math.atan2(y1 - y0, x1 - x0) * 180) / Math.PI
  return `<path class="arrow" d="M${points.map(point => point.join(' ')).join('L')}"/><path class="tip" d="M0 0l-8 -4v8z" transform="translate(${x1} ${y1}) rotate(${turn.toFixed(1)})"/>`
}

function flow() {
  const content = [
    box([16, 40, 90, 54], ['client']),
    box([176, 30, 150, 74], ['gateway', 'picks a prefill worker,', 'then a decode worker'], 'main'),
    box([430, 16, 190, 62], ['prefill worker', 'reads the prompt,', 'counts its experts']),
    box([430, 122, 190, 62], ['decode worker', 'fetches the KV blocks,', 'generates the response']),
    arrow([106, 60], [176, 60]),
    arrow([326, 46], [430, 46]),
    text(378, 38, '1 prompt', { kind: 'quiet' }),
    arrow([430, 66], [326, 66]),
    text(378, 84, '2 counts', { kind: 'quiet' }),
    arrow([290, 104], [290, 140], [430, 140]),
    text(360, 132, '3 request', { kind: 'quiet' }),
    arrow([430, 166], [220, 166], [220, 104]),
    text(330, 160, '4 tokens', { kind: 'quiet' }),
    arrow([176, 80], [106, 80]),
    arrow([600, 78], [600, 122]),
    text(592, 104, 'KV', { anchor: 'end', kind: 'quiet' }),
  ]
  return framed({
    title: 'The path of a request',
    description:
      'The gateway sends the prompt to a prefill worker, receives a hand-off with expert counts, uses them to pick a decode worker and forwards its tokens. The decode worker fetches the KV blocks from the prefill worker.',
    width: 640,
    height: 204,
    content: content.join('\n'),
  })
}

function offline() {
  const names = [
    ['your prompts', 'a few hundred'],
    ['eldr calibrate', 'asks a server that', 'records experts'],
    ['trace', 'experts of prompts', 'and responses'],
    ['eldr fit', 'signature, layers,', 'clusters'],
    ['artifact', 'one centroid per', 'decode worker'],
  ]
  const content = names.map((lines, i) => box([12 + i * 152, 20, 132, 76], lines, i % 2 === 1 ? 'main' : ''))
  for (let i = 0; i < names.length - 1; i++) content.push(arrow([144 + i * 152, 58], [164 + i * 152, 58]))
  return framed({
    title: 'From prompts to an artifact',
    description: 'eldr calibrate records a trace of your prompts, eldr fit turns the trace into an artifact.',
    width: 764,
    height: 116,
    content: content.join('\n'),
  })
}

/** Experts of four requests in one step, twelve experts in the layer. */
const ALIKE = [
  [0, 1, 2],
  [0, 2, 3],
  [1, 2, 3],
  [0, 1, 3],
]
const MIXED = [
  [0, 1, 2],
  [4, 5, 7],
  [6, 8, 9],
  [2, 10, 11],
]

function union() {
  const grid = (left, title, requests) => {
    const used = new Set(requests.flat())
    const row = (y, experts, kind) =>
      Array.from(
        { length: 12 },
        (_, e) =>
          `<rect x="${left + e * 18}" y="${y}" width="15" height="15" rx="3" class="${experts.has(e) ? kind : 'off'}"/>`,
      ).join('')
    return [
      text(left, 24, title, { anchor: 'start', kind: 'strong' }),
      ...requests.map((experts, i) => row(38 + i * 21, new Set(experts), 'on')),
      row(132, used, 'all'),
      text(left, 168, `${used.size} experts to load`, { anchor: 'start' }),
    ].join('')
  }
  const names = ['request 1', 'request 2', 'request 3', 'request 4'].map((name, i) =>
    text(74, 50 + i * 21, name, { anchor: 'end', kind: 'quiet' }),
  )
  const content = [
    ...names,
    text(74, 144, 'the step', { anchor: 'end', kind: 'quiet' }),
    grid(86, 'A mixed batch', MIXED),
    grid(356, 'A batch that shares experts', ALIKE),
  ]
  return framed({
    title: 'Distinct experts of a step',
    description:
      'Four requests with three experts each use eleven distinct experts if mixed, four if similar. A step loads each expert once.',
    width: 600,
    height: 186,
    content: content.join('\n'),
  })
}

function band() {
  const tau = 0.1
  const workers = [
    ['decode-0', 0.91, 9],
    ['decode-1', 0.86, 4],
    ['decode-2', 0.83, 7],
    ['decode-3', 0.52, 1],
  ]
  const at = cosine => 100 + (cosine - 0.4) * 560
  const best = Math.max(...workers.map(([, cosine]) => cosine))
  const inside = workers.filter(([, cosine]) => cosine >= best - tau)
  const picked = inside.reduce((a, b) => (b[2] < a[2] ? b : a))
  const rows = workers.flatMap(([name, cosine, inflight], i) => {
    const y = 44 + i * 32
    const isPicked = name === picked[0]
    return [
      text(88, y + 12, name, { anchor: 'end', kind: isPicked ? 'strong' : '' }),
      `<rect x="100" y="${y}" width="${(at(cosine) - 100).toFixed(0)}" height="16" rx="3" class="${cosine >= best - tau ? 'on' : 'off'}"/>`,
      text(430, y + 12, `cosine ${cosine}, ${inflight} in flight${isPicked ? ': picked' : ''}`, {
        anchor: 'start',
        kind: isPicked ? 'strong' : 'quiet',
      }),
    ]
  })
  const [from, to] = [at(best - tau), at(best)].map(x => x.toFixed(0))
  const frame = `<rect x="${from}" y="30" width="${to - from}" height="140" fill="var(--star)" fill-opacity=".14"/>`
  return framed({
    title: 'The locality band',
    description:
      'Three of four workers have a cosine within 0.1 of the best; of these the one with the fewest requests is picked, not the idle one outside the band.',
    width: 640,
    height: 184,
    content: [
      frame,
      text((Number(from) + Number(to)) / 2, 22, `band, τ = ${tau}`, { kind: 'quiet' }),
      ...rows,
    ].join('\n'),
  })
}

function blocks() {
  const column = (i, cached) => {
    const x = 110 + i * 104
    return (
      box([x, 34, 92, 40], [cached ? 'cached' : 'computed', 'KV block'], cached ? '' : 'main') +
      box([x, 84, 92, 40], ['its experts', `row ${i}`], cached ? '' : 'main') +
      arrow([x + 46, 124], [x + 46, 148])
    )
  }
  const content = [
    text(98, 58, 'KV cache', { anchor: 'end', kind: 'quiet' }),
    text(98, 108, 'experts', { anchor: 'end', kind: 'quiet' }),
    text(214, 22, 'by an earlier request', { kind: 'quiet' }),
    text(422, 22, 'by this request', { kind: 'quiet' }),
    column(0, true),
    column(1, true),
    column(2, false),
    column(3, false),
    box([110, 148, 404, 34], ['sum of the rows: the counts of the whole prompt']),
  ]
  return framed({
    title: 'Experts are stored with the KV blocks',
    description:
      'Every KV block has a row with the experts of its tokens. The sum over the blocks of a prompt is exact, whichever request computed them.',
    width: 540,
    height: 200,
    content: content.join('\n'),
  })
}

export const DIAGRAMS = {
  'flow.svg': flow(),
  'offline.svg': offline(),
  'union.svg': union(),
  'band.svg': band(),
  'blocks.svg': blocks(),
}
