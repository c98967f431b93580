// CPU time and memory of a process and all its descendants, from /proc. Linux only, as is the benchmark.
import { readdirSync, readFileSync } from 'node:fs'

const TICKS_PER_S = 100 // of /proc/PID/stat, on every Linux that Node runs on

/** Fields of /proc/PID/stat after the name, which may hold blanks. @param {number} pid */
function stat(pid) {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1')
    return text.slice(text.lastIndexOf(')') + 2).split(' ')
  } catch {
    return undefined // it has ended
  }
}

/** A process and its descendants. @param {number} root @returns {number[]} */
export function tree(root) {
  const parents = new Map()
  for (const name of readdirSync('/proc')) {
    const parent = /^\d+$/.test(name) ? stat(Number(name))?.[1] : undefined
    if (parent !== undefined) parents.set(Number(name), Number(parent))
  }
  const found = [root]
  for (let i = 0; i < found.length; i++)
    for (const [pid, parent] of parents) if (parent === found[i]) found.push(pid)
  return found
}

/** utime + stime. @param {readonly number[]} pids */
export function cpuSeconds(pids) {
  let ticks = 0
  for (const pid of pids) {
    const fields = stat(pid)
    if (fields !== undefined) ticks += Number(fields[11]) + Number(fields[12])
  }
  return ticks / TICKS_PER_S
}

/** Busy time of all cores since boot, for all processes. */
export function machineSeconds() {
  const [user, nice, system, , , irq, softirq, steal] = readFileSync('/proc/stat', 'latin1')
    .split('\n', 1)[0]
    .split(/ +/)
    .slice(1)
    .map(Number)
  return (user + nice + system + irq + softirq + steal) / TICKS_PER_S
}

/** Resident memory. @param {readonly number[]} pids */
export function residentBytes(pids) {
  let bytes = 0
  for (const pid of pids) {
    try {
      bytes +=
        1024 * Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1] ?? 0)
    } catch {
      // it has ended
    }
  }
  return bytes
}
