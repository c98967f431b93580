// Fits a cost profile to the recorded steps of a served engine (kind `profile` of bench/gpu/serving):
//   npm run build
//   node scripts/served-profile.mjs RESULT.json[.br] [--base NAME] [--out FILE] [--dry] [--dist FOLDER]
// --base: shipped profile, or a path, whose prefill and KV cache are taken if the result has none. Without
// --out the profile is written to profiles/ under its own name. --dry accepts the result of a rehearsal
// without a GPU, and needs --out. --dist: the built project (default: that of this checkout).
import { writeFileSync } from 'node:fs'
import { basename, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'

const { values: flags, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    base: { type: 'string' },
    out: { type: 'string' },
    dry: { type: 'boolean' },
    dist: { type: 'string' },
  },
})
const dist =
  flags.dist === undefined ? new URL('../dist/', import.meta.url) : pathToFileURL(`${resolve(flags.dist)}/`)
const from = path => import(new URL(path, dist))
const { loadProfile } = await from('cost/profile-file.js')
const { parseServedResult } = await from('served/result-file.js')
const { resultText, writtenName } = await from('report/result-text.js')
const { profileText, servedProfile } = await from('served/served-profile.js')
const [file] = positionals
if (file === undefined) throw new Error('expected the result of a profile step')
if (flags.dry === true && flags.out === undefined) throw new Error('--dry needs --out')
const saved = JSON.parse(await resultText(file))
const rehearsed = () => ({
  ...saved,
  status: 'ok',
  conditions: { commit: '0'.repeat(40), gpu: { name: 'no GPU', driver: 'none' }, ...saved.conditions },
})
const result = parseServedResult(writtenName(basename(file)), flags.dry === true ? rehearsed() : saved)
if (result?.kind !== 'profile') throw new Error(`${file}: not the result of a profile step`)
const base = flags.base === undefined ? undefined : await loadProfile(flags.base)
const { profile, fit } = servedProfile(result, base)
const out = flags.out ?? new URL(`../profiles/${profile.name}.json`, import.meta.url)
writeFileSync(out, profileText(profile))
const { error, hostBound, steps } = fit
const percent = share => `${(100 * share).toFixed(1)} %`
console.log(
  `${profile.name}: ${steps} steps, error ${percent(error.median)} median, ${percent(error.p90)} p90; ${percent(hostBound)} bound by the host`,
)
