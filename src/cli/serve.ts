import type { Command } from 'commander'
import type { FlagValues } from '../gateway/config/flags/flag-values.ts'
import { CONFIG, longNameOf, SOURCES } from '../gateway/config/flags/sources.ts'

export function addServe(program: Command): void {
  addSettingFlags(program.command('serve'))
    .option('--replace', 'replace the gateway that runs at this address; it finishes its streams')
    .summary('run the gateway')
    .description(
      'Accepts OpenAI-compatible requests, sends each to a prefill worker first and then to the decode worker that the policy picks.',
    )
    .addHelpText(
      'after',
      `
Every flag has an environment variable (--port: ELDR_PORT) and a key in the configuration file; see
docs/reference/config.md. On SIGTERM or Ctrl-C running streams may finish; a second signal ends them.
With --replace, a new process takes over the port; --replace returns when it serves.

Examples:
  eldr serve --prefill http://10.0.0.1:8000 --decode http://10.0.1.1:8000 --decode http://10.0.1.2:8000
  eldr serve --config eldr.yaml --artifact task.artifact.safetensors --policy eldr
  eldr serve --config eldr.yaml --replace`,
    )
    .action(async (_: unknown, command: Command) => {
      const flags = new Map(flagValues(command))
      if (flags.delete('--replace')) {
        const { replaceAction } = await import('./replace.ts')
        return replaceAction(flags)
      }
      const { serveAction } = await import('./serve-action.ts')
      return serveAction(flags, async (settings, log, replacing) => {
        if (settings.server.processes > 1) {
          const { startProcesses } = await import('../gateway/scale/processes/supervisor.ts')
          return startProcesses(settings, log, adaptationModule(), replacing)
        }
        const { startOneProcess } = await import('../gateway/app/one-process.ts')
        const { createAdaptation } = await import('./adaptation.ts')
        return startOneProcess(settings, log, createAdaptation, replacing)
      })
    })
}

/** For the owner process, which loads it itself. */
function adaptationModule(): URL {
  return new URL(import.meta.url.endsWith('.js') ? './adaptation.js' : './adaptation.ts', import.meta.url)
}

/**
 * Values stay strings: the schema checks flags, environment and file together, so all problems are reported
 * at once.
 */
export function addSettingFlags(command: Command): Command {
  for (const { flag, help } of [CONFIG, ...SOURCES]) if (flag !== undefined) command.option(flag, help)
  return command
}

/** Flags given on the command line, by long name. */
export function flagValues(command: Command): FlagValues {
  const values = new Map<string, string | readonly string[] | true>()
  for (const option of command.options) {
    const value = command.getOptionValue(option.attributeName()) as
      | string
      | readonly string[]
      | true
      | undefined
    if (value !== undefined) values.set(longNameOf(option.flags), value)
  }
  return values
}
