import type { Command } from 'commander'
import { loadSettings } from '../gateway/config/load.ts'
import { schemaText } from '../gateway/config/schema/reference.ts'
import { asJson, asYaml } from '../gateway/config/show.ts'
import { printable, type Terminal, terminalOn, wrapped } from '../report/terminal.ts'
import type { ConfigFlags } from './config.ts'
import { flagValues } from './serve.ts'

/** `eldr config check` */
export async function checkAction(file: string): Promise<void> {
  const [out, err] = [terminalOn(process.stdout), terminalOn(process.stderr)]
  const { warnings } = await loadSettings({ file })
  showWarnings(warnings, err)
  out.write(`${printable(file)}: valid\n`)
}

/** `eldr config print` */
export async function printAction(flags: ConfigFlags, command: Command): Promise<void> {
  const [out, err] = [terminalOn(process.stdout), terminalOn(process.stderr)]
  const loaded = await loadSettings({ flags: flagValues(command), env: process.env })
  showWarnings(loaded.warnings, err)
  out.write(flags.json ? `${JSON.stringify(asJson(loaded), null, 2)}\n` : asYaml(loaded))
}

/** `eldr config schema` */
export async function schemaAction(): Promise<void> {
  terminalOn(process.stdout).write(schemaText())
}

export function showWarnings(warnings: readonly string[], { write, warn, width }: Terminal): void {
  for (const warning of warnings) write(`${warn('warning:')} ${wrapped(printable(warning), width - 9, 9)}\n`)
}
