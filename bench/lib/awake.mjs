// Busy loops at the lowest priority, which keep idle cores awake. A sleeping core of a virtual machine takes
// about 30 µs to wake, which does not occur on a busy gateway.
import { spawn, spawnSync } from 'node:child_process'
import { availableParallelism } from 'node:os'

const NOTHING = 'for (;;);'

/** @returns a function that ends them; undefined if the priority is not available. */
export function keepAwake() {
  if (spawnSync('chrt', ['--idle', '0', 'true']).status !== 0) return undefined
  const children = Array.from({ length: availableParallelism() }, () =>
    spawn('chrt', ['--idle', '0', process.execPath, '-e', NOTHING], { stdio: 'ignore' }),
  )
  const end = () => children.forEach(child => child.kill('SIGKILL'))
  process.once('exit', end)
  return end
}
