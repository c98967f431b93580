/** `eldr serve --replace`: asks the gateway that runs to start this command in its place. */
import type { FlagValues } from '../gateway/config/flags/flag-values.ts'
import { loadSettings } from '../gateway/config/load.ts'
import { askToReplace } from '../gateway/scale/replace/control-socket.ts'
import type { Command } from '../gateway/scale/replace/messages.ts'
import { terminalOn } from '../report/terminal.ts'

export const REPLACE_FLAG = '--replace'

/** Resolves when the new process serves; throws the reason if it does not. */
export async function replaceAction(flags: FlagValues): Promise<void> {
  const { settings } = await loadSettings({ flags, env: process.env })
  const { host, port } = settings.server
  const { pid, version } = await askToReplace(`${host}:${port}`, commandHere())
  terminalOn(process.stdout).write(`replaced: process ${pid} (eldr ${version}) serves\n`)
}

/** The command line of this process, without --replace. */
export function commandHere(): Command {
  const [node, program, ...args] = process.argv
  return {
    node: node!,
    nodeArgs: process.execArgv,
    program: program!,
    args: args.filter(arg => arg !== REPLACE_FLAG),
    folder: folderHere(),
    env: process.env,
  }
}

/** A folder that has been removed has no name. */
function folderHere(): string {
  try {
    return process.cwd()
  } catch {
    return '/'
  }
}
