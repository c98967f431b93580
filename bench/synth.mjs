// Writes a synthetic calibration trace.
//
//   node bench/synth.mjs FILE [--requests 1000] [--layers 48] [--experts 128] [--top-k 8] [--domains 4]
//     [--seed 1] [--gates]
//
// --gates adds gate scores, so that all six transforms of the paper can be tried.
import { parseArgs } from 'node:util'
import { writeTrace } from './lib/synth.mjs'

const number = value => ({ type: 'string', default: String(value) })
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    requests: number(1000),
    layers: number(48),
    experts: number(128),
    'top-k': number(8),
    domains: number(4),
    seed: number(1),
    gates: { type: 'boolean', default: false },
  },
})
if (positionals.length !== 1)
  throw new Error('usage: node bench/synth.mjs FILE [--requests 1000] [--layers 48] …')
writeTrace(positionals[0], {
  requests: Number(values.requests),
  layers: Number(values.layers),
  experts: Number(values.experts),
  topK: Number(values['top-k']),
  domains: Number(values.domains),
  seed: Number(values.seed),
  gates: values.gates,
})
