/** `eldr demo`: runs three policies on one cluster and compares them. */
import { mkdir } from 'node:fs/promises'
import { basename, dirname } from 'node:path'
import { loadWatch } from '../load/progress.ts'
import { machineHere } from '../load/result.ts'
import { sharedWorkload, type SharedWorkload } from '../load/sweep.ts'
import { exhibitPage } from '../report/exhibit-page.ts'
import { duration, fixed } from '../report/numbers.ts'
import { printable, type Terminal, terminalOn, wrapped } from '../report/terminal.ts'
import type { SimulationResult } from '../sim/result.ts'
import { openStudy } from '../sim/study-pool.ts'
import { writeFileAtomic } from '../trace/write-atomic.ts'
import { EmbeddedCluster } from '../up/cluster.ts'
import type { ClusterEvents } from '../up/cluster-events.ts'
import { changeOf, type DemoAbout, demoReport, demoTables, isMeasured } from '../up/demo-report.ts'
import { checkSame, differing, type DemoRun, type DemoWatch, runDemo } from '../up/demo.ts'
import { Observer } from '../up/observe.ts'
import { VERSION } from '../version.ts'
import type { DemoFlags } from './demo.ts'
import { shutdownSignal } from './shutdown-signal.ts'
import { checkOutputs } from './outputs.ts'
import { tinyFiles } from './tiny-files.ts'
import {
  affordableSpeed,
  clusterFiles,
  type ClusterFiles,
  clusterSettings,
  topologyOf,
  defaultRate,
} from './up-cluster.ts'

export const DEMO_FORMAT = 'eldr.demo.v1'
const POLICIES = ['round_robin', 'eldr', 'union'] as const
const TIMEOUT_MS = 120_000
/**
 * Seconds of load per policy. The tiny model has a lower request rate and needs longer for as many requests.
 */
const SECONDS = { replay: 24, tiny: 30 } as const

interface Plan {
  readonly rate: number
  readonly speed: number
  readonly requests: number
}

export async function demoAction(flags: DemoFlags): Promise<void> {
  const signalled = shutdownSignal()
  const [out, err] = [terminalOn(process.stdout), terminalOn(process.stderr)]
  const fromMs = performance.now()
  await mkdir(dirname(flags.report), { recursive: true }).catch(() => undefined)
  await checkOutputs([flags.trace, flags.artifact, flags.prompts], [flags.report])
  const plan = planOf(flags)
  const files = flags.backend === 'tiny' ? await tinyFiles(flags, 'profile', true) : await clusterFiles(flags)
  const about = aboutOf(flags, plan, files)
  if (!flags.quiet) err.write(`${wrapped(opening(about), err.width)}\n`)
  const cluster = new EmbeddedCluster(
    clusterSettings({ ...flags, speed: plan.speed }, files, 'eldr'),
    eventsOn(flags, err),
  )
  const stopped = signalled.then(async signal => {
    await cluster.stop()
    process.removeAllListeners(signal)
    process.kill(process.pid, signal)
    return new Promise<never>(() => undefined)
  })
  const runs = await Promise.race([measure(cluster, flags, plan, files, err), stopped]).finally(() =>
    cluster.stop(),
  )
  await writeFileAtomic(flags.report, [exhibitPage(demoReport(runs, about), VERSION)])
  if (flags.json) out.write(`${JSON.stringify(resultOf(runs, about), null, 2)}\n`)
  else {
    out.write(`\n${demoTables(runs, about, out)}\n\n${out.accent('report')} ${printable(flags.report)}\n`)
    out.write(`${out.dim(`finished in ${duration(performance.now() - fromMs)}`)}\n`)
  }
  checkSame(runs)
}

/** Simulations run while the cluster starts, before any measurement. */
async function measure(
  cluster: EmbeddedCluster,
  flags: DemoFlags,
  { rate, speed, requests }: Plan,
  files: ClusterFiles,
  err: Terminal,
): Promise<DemoRun[]> {
  const { rows, model, sourceOf } = files
  const shared = sharedWorkload(rows, 'poisson', rate, requests, flags.seed)
  const [simulated] = await Promise.all([simulate(flags, rate, shared, files), cluster.start()])
  const observer = new Observer(cluster)
  try {
    const live = {
      rows,
      sourceOf,
      api: 'completions',
      form: 'ids',
      model,
      seed: flags.seed,
      timeoutMs: TIMEOUT_MS,
    } as const
    const load = { policies: POLICIES, rate, speed, shared, live }
    return await runDemo(
      await cluster.attach(),
      () => observer.look(),
      load,
      simulated,
      watchOn(flags, err, requests),
    )
  } finally {
    await observer.close()
  }
}

function planOf(flags: DemoFlags): Plan {
  const rate = flags.rate ?? defaultRate(flags)
  const speed = flags.speed ?? affordableSpeed(rate, flags)
  const seconds = flags.seconds ?? SECONDS[flags.backend]
  return { rate, speed, requests: Math.max(20, Math.round(rate * speed * seconds)) }
}

async function simulate(
  flags: DemoFlags,
  rate: number,
  { rowList }: SharedWorkload,
  { trace, artifact }: ClusterFiles,
): Promise<SimulationResult[]> {
  const study = {
    trace,
    profile: flags.profile,
    topology: topologyOf(flags),
    requests: rowList.length,
    arrivals: 'poisson',
    rows: 'passes',
    rowList,
    artifact: artifact?.path,
  } as const
  const pool = openStudy(study)
  return pool
    .run(
      POLICIES.map(variant => ({ variant, rate, seed: flags.seed, setting: {} })),
      () => undefined,
    )
    .finally(pool.close)
}

function aboutOf(flags: DemoFlags, plan: Plan, { model, trace, profile }: ClusterFiles): DemoAbout {
  return {
    topology: topologyOf(flags),
    model,
    computed: flags.backend === 'tiny',
    trace: basename(trace),
    profile: profile.name,
    profileSource: profile.provenance.what,
    machine: machineHere(),
    ...plan,
    seed: flags.seed,
    version: VERSION,
  }
}

function opening({ topology, model, computed, profile, rate, requests, speed }: DemoAbout): string {
  const time = speed === 1 ? '' : ` at ${speed}× speed`
  return `${topology} on this machine: ${printable(model)} ${computed ? 'computed' : 'replayed'}, step times from profile ${printable(profile)}${time}. ${requests} requests at ${fixed(rate, 0)} per second for each of ${POLICIES.join(', ')}.`
}

function watchOn(flags: DemoFlags, err: Terminal, requests: number): DemoWatch {
  if (flags.quiet) return { began: () => undefined, progress: () => undefined, ended: () => undefined }
  let watch = loadWatch(err, '', requests)
  let base: DemoRun | undefined
  return {
    began: policy => void (watch = loadWatch(err, policy, requests)),
    progress: now => watch.progress(now),
    ended(run) {
      watch.clear()
      base ??= run
      const change = run === base ? '' : `, ${fixed(changeOf(run, base, 'p50').live * 100, 1)} %`
      err.write(
        `  ${run.policy}: TPOT p50 ${fixed(run.tpotMs.p50, 2)} ms${change}, ${fixed(run.activeExperts, 1)} experts\n`,
      )
    },
  }
}

function eventsOn({ verbose }: DemoFlags, { write, warn, dim }: Terminal): ClusterEvents {
  return {
    line: (name, line) => verbose && write(`${dim(`${name}: ${printable(line)}`)}\n`),
    ended: (name, how) => write(`${warn('!')} ${name} exited (${printable(how)}), restarting\n`),
    restarted: name => write(`${name} restarted\n`),
  }
}

function resultOf(runs: readonly DemoRun[], about: DemoAbout) {
  const base = runs[0]!
  return {
    format: DEMO_FORMAT,
    at: new Date().toISOString(),
    ...about,
    outputsIdentical: runs.every(({ outputs }) => differing(base.outputs, outputs).length === 0),
    policies: runs.map(({ policy, tpotMs, activeExperts, batch, late, figures, simulated, outputs }, at) => ({
      policy,
      tpotMs,
      activeExperts,
      batch,
      late,
      ...(at > 0 && {
        isMeasurement: isMeasured(runs[at]!, base),
        change: { p50: changeOf(runs[at]!, base, 'p50'), p99: changeOf(runs[at]!, base, 'p99') },
      }),
      differingOutputs: differing(base.outputs, outputs).length,
      live: figures,
      simulated,
    })),
  }
}
