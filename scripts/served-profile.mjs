// Fits a cost profile to the recorded steps of a served engine (kind `profile` of bench/gpu/serving):
//   npm run build && node scripts/served-profile.mjs RESULT.json [--base NAME] [--out FILE] [--dry]
// --base: shipped profile, or a path, whose prefill and KV cache are taken if the result has none. Without --out
// the profile is written to profiles/ under its own name. --dry accepts the result of a rehearsal without a GPU,
// and needs --out.
import { readFileSync, writeFileSync } from 'node:fs'
import { basename } from 'node:path'
import { parseArgs } from 'node:util'
import { loadProfile } from '../dist/cost/profile-file.js'
import { parseServedResult } from '../dist/served/result-file.js'
import { profileText, servedProfile } from '../dist/served/served-profile.js'

const { values: flags, positionals } = parseArgs({
  allowPositionals: true,
  options: { base: { type: 'string' }, out: { type: 'string' }, dry: { type: 'boolean' } },
})
const [file] = positionals
if (file === undefined) throw new Error('expected the result of a profile step')
if (flags.dry === true && flags.out === undefined) throw new Error('--dry needs --out')
const saved = JSON.parse(readFileSync(file, 'utf8'))
const rehearsed = () => ({
  ...saved,
  status: 'ok',
  conditions: { commit: '0'.repeat(40), gpu: { name: 'no GPU', driver: 'none' }, ...saved.conditions },
})
const result = parseServedResult(basename(file), flags.dry === true ? rehearsed() : saved)
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
