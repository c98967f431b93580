// Programs that do nothing, at a priority below all others: cores that have nothing else to do then do not fall asleep. A sleeping core of a
// virtual machine takes some 30 µs to wake, which a busy gateway does not meet.
import { spawn, spawnSync } from 'node:child_process'
import { availableParallelism } from 'node:os'

const NOTHING = 'for (;;);'

/** @returns what ends them; undefined where there is no such priority. */
export function keepAwake() {
  if (spawnSync('chrt', ['--idle', '0', 'true']).status !== 0) return undefined
  const children = Array.from({ length: availableParallelism() }, () =>
    spawn('chrt', ['--idle', '0', process.execPath, '-e', NOTHING], { stdio: 'ignore' }),
  )
  const end = () => children.forEach(child => child.kill('SIGKILL'))
  process.once('exit', end)
  return end
}
