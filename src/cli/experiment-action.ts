/** `eldr experiment` */
import { randomInt } from 'node:crypto'
import { MAX_TAU } from '../gateway/config/schema/schema-parts.ts'
import { LEASE_MS } from '../gateway/control/admin/experiment-routes.ts'
import { type ExperimentRun, policyParts, runExperiment, treatmentNames } from '../load/experiment.ts'
import { cautionsOf, comparisonsOf, experimentTables, experimentWatch } from '../load/experiment-report.ts'
import { policyNamed } from '../policy/decode-policy.ts'
import { printable, terminalOn } from '../report/terminal.ts'
import { writeFileAtomic } from '../trace/write-atomic.ts'
import { VERSION } from '../version.ts'
import type { ExperimentFlags } from './experiment.ts'
import { usageError } from './options.ts'
import { checkOutputs } from './outputs.ts'
import { stoppable } from './stoppable.ts'

const MAX_SEED = 2 ** 32

export async function experimentAction(flags: ExperimentFlags): Promise<void> {
  checkFlags(flags)
  const file = typeof flags.json === 'string' ? flags.json : undefined
  await checkOutputs([], [file])
  const { url, policies, slots, adminToken, insecure } = flags
  const seed = flags.seed ?? randomInt(MAX_SEED)
  const at = new Date().toISOString()
  const watch = flags.quiet ? undefined : experimentWatch(terminalOn(process.stderr))
  const report = async ({ slots: measured, failure }: ExperimentRun) => {
    watch?.clear()
    const comparisons = comparisonsOf(treatmentNames(policies), measured)
    const early = failure === undefined ? [] : [`ended early, after ${measured.length} of ${slots} slots`]
    const cautions = [...early, ...cautionsOf(comparisons, measured)]
    const out = terminalOn(process.stdout)
    const { slot: slotSeconds, washout: washoutSeconds } = flags
    const setup = { url, policies, slotSeconds, washoutSeconds, slots, seed }
    const result = { version: VERSION, at, setup, comparisons, cautions, slots: measured }
    const text = `${JSON.stringify(result, null, 2)}\n`
    if (flags.json === true) return void out.write(text)
    if (file !== undefined) await writeFileAtomic(file, [text])
    out.write(`\n${experimentTables(comparisons, cautions, out)}\n`)
    if (file !== undefined) out.write(`\n${out.accent('json')} ${printable(file)}\n`)
  }
  await stoppable(
    async stop => {
      const run = await runExperiment({
        gateway: { url, adminToken, insecure },
        policies,
        slotMs: 1000 * flags.slot,
        washoutMs: Math.round(1000 * flags.washout),
        leaseMs: Math.round(1000 * flags.lease),
        slots,
        seed,
        stop,
        onProgress: watch?.progress,
      })
      await report(run)
      // The exit status says that it ended early; what it has is reported.
      if (run.failure !== undefined) throw run.failure
    },
    () => watch?.clear(),
  )
}

function checkFlags({ policies, slot, washout, slots, lease }: ExperimentFlags): void {
  for (const name of policies) checkPolicy(name)
  const leaseMs = Math.round(1000 * lease)
  if (leaseMs < LEASE_MS.min || leaseMs > LEASE_MS.max)
    throw usageError(
      `--lease ${lease}`,
      `${LEASE_MS.min / 1000} to ${LEASE_MS.max / 1000} seconds`,
      'Pass another --lease.',
    )
  if (policies.length < 2)
    throw usageError(`${policies.length} policy`, 'two or more', 'Pass them as --policies jsq,union.')
  if (washout >= slot)
    throw usageError(
      `--washout ${washout} and --slot ${slot}`,
      'a washout shorter than the slot',
      'Pass a longer --slot.',
    )
  if (slots % policies.length !== 0)
    throw usageError(
      `--slots ${slots} for ${policies.length} policies`,
      'a multiple, so that each block has every policy',
      `Pass --slots ${Math.ceil(slots / policies.length) * policies.length}.`,
    )
}

function checkPolicy(name: string): void {
  const known = policyNamed(name.split('@')[0]!.replaceAll('-', '_'))
  if (known === undefined)
    throw usageError(`policy ${JSON.stringify(name)}`, 'names of policies', 'See --help for the names.')
  const parts = policyParts(name, MAX_TAU)
  const takesTau = 'setting' in known && known.setting === 'tau'
  if (parts === undefined || (parts.tau !== undefined && !takesTau))
    throw usageError(
      `policy ${JSON.stringify(name)}`,
      takesTau ? `a τ from 0 to ${MAX_TAU} after the @` : `no τ: ${known.name} has none`,
      'Pass it as in --policies eldr,eldr@0.2.',
    )
}
