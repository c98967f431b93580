// Times of child processes, from spawn to exit, and of functions. Always medians, because a shared machine
// has slow moments.
import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'

export function median(values) {
  const sorted = Float64Array.from(values).sort()
  const middle = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
}

/**
 * Runs a command to its end: {wallMs, peakBytes, stdout}. The peak is the kernel's own high-water mark of
 * resident memory (VmHWM), read while the process runs, so the program needs no hook; undefined without
 * /proc.
 */
export function runProcess(command, args, { env = {} } = {}) {
  return new Promise((resolve, reject) => {
    const start = performance.now()
    const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] })
    const [stdout, stderr] = [[], []]
    let peakBytes
    let wallMs
    child.stdout.on('data', chunk => stdout.push(chunk))
    child.stderr.on('data', chunk => stderr.push(chunk))
    const watch = setInterval(() => (peakBytes = highWater(child.pid) ?? peakBytes), 10)
    child.on('error', error => {
      clearInterval(watch)
      reject(error)
    })
    child.on('exit', () => {
      wallMs = performance.now() - start
      clearInterval(watch)
    })
    child.on('close', (code, signal) => {
      if (code === 0) return resolve({ wallMs, peakBytes, stdout: Buffer.concat(stdout).toString() })
      const said = Buffer.concat(stderr).toString().trim().split('\n').slice(-5).join('\n')
      reject(new Error(`${command} ${args.join(' ')} ended with ${signal ?? code}\n${said}`))
    })
  })
}

function highWater(pid) {
  try {
    const line = /^VmHWM:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))
    return line === null ? undefined : Number(line[1]) * 1024
  } catch {
    return undefined
  }
}

/** Repeated runs after `warmUp` uncounted ones: the last run with the median wall time, and all runs. */
export async function medianRun(repeat, run, warmUp = 1) {
  for (let n = 0; n < warmUp; n++) await run()
  const runs = []
  for (let n = 0; n < repeat; n++) runs.push(await run())
  return { ...runs.at(-1), wallMs: median(runs.map(({ wallMs }) => wallMs)), runs }
}

/**
 * Milliseconds of one call: the median over samples of at least `sampleMs`, longer than the clock's
 * resolution and shorter than a scheduler slice, so that most samples are undisturbed even on a busy machine.
 */
export function medianCall(call, { samples = 301, sampleMs = 0.5, warmUpMs = 300 } = {}) {
  // Until the engine has compiled it.
  for (const start = performance.now(); performance.now() - start < warmUpMs;) call()
  let calls = 1
  while (timeOf(call, calls) < sampleMs) calls *= 2
  return median(Array.from({ length: samples }, () => timeOf(call, calls) / calls))
}

function timeOf(call, calls) {
  const start = performance.now()
  for (let n = 0; n < calls; n++) call()
  return performance.now() - start
}
