// The rows of the table: the load on each router and the figures.

const perRequestUs = ({ routerCpuS, requests }) => (routerCpuS / requests) * 1e6
const perTokenUs = ({ routerCpuS, tokens }) => (routerCpuS / tokens) * 1e6
const requestsPerS = ({ requests, wallS }) => requests / wallS
const tokensPerS = ({ tokens, wallS }) => tokens / wallS
const whole = value => Math.round(value).toLocaleString('en')
const tenth = value => value.toFixed(1)

const CPU_REQUEST = { name: 'CPU µs per request', of: perRequestUs, show: whole, isCost: true }
const CPU_TOKEN = { name: 'CPU µs per token', of: perTokenUs, show: tenth, isCost: true }
const REQUESTS = { name: 'requests/s', of: requestsPerS, show: whole, wall: true }
const TOKENS = { name: 'tokens/s', of: tokensPerS, show: whole, wall: true }
const RESIDENT = { name: 'resident MB', of: ({ rssBytes }) => rssBytes / 1e6, show: whole, isCost: true }
/**
 * Added time compared with the direct client in the same round. A difference of two p99 is noise and has no
 * ratio.
 */
const addedTtft = at => ({
  name: `added ms to the first token, ${at}`,
  of: ({ ttftMs }, direct) => ttftMs[at] - direct.ttftMs[at],
  show: value => value.toFixed(2),
  noRatio: at === 'p99',
  isCost: true,
  wall: true,
})

const SHORT = { streams: 64, promptBytes: 1024, tokens: 16 }
const LONG = { ...SHORT, promptBytes: 32 * 1024 }

/**
 * `counts`: the prefill workers hand off counts of this shape. `wall`: the direct client has this figure too.
 */
export const ROWS = [
  {
    name: 'short',
    title: '1 KB prompt, 16 tokens, 64 at once',
    plan: SHORT,
    figures: [CPU_REQUEST, REQUESTS],
  },
  {
    name: 'long-prompt',
    title: '32 KB prompt, 16 tokens, 64 at once',
    plan: LONG,
    figures: [CPU_REQUEST, REQUESTS],
  },
  {
    name: 'counts',
    title: '1 KB prompt, 16 KiB of counts handed off',
    plan: SHORT,
    counts: '48x128x8',
    figures: [CPU_REQUEST, REQUESTS],
  },
  {
    name: 'paced',
    title: '64 streams, 256 tokens, one token every 5 ms',
    plan: { ...SHORT, tokens: 256 },
    gapMs: 5,
    figures: [CPU_TOKEN],
  },
  {
    name: 'fast',
    title: '16 streams, 256 tokens, as fast as they come',
    plan: { ...SHORT, streams: 16, tokens: 256 },
    figures: [TOKENS, CPU_TOKEN],
  },
  {
    name: 'first-token',
    title: '1 KB prompt, one client',
    plan: { ...SHORT, streams: 1 },
    figures: [addedTtft('p50'), addedTtft('p99')],
  },
  {
    name: 'memory',
    title: '256 at once, 1 KB prompt',
    plan: { ...SHORT, streams: 256 },
    figures: [RESIDENT],
  },
  {
    name: 'memory-long',
    title: '256 at once, 32 KB prompt',
    plan: { ...LONG, streams: 256 },
    figures: [RESIDENT],
  },
]
