import type { Command } from 'commander'
import type { FlagValues } from '../gateway/config/flags/flag-values.ts'
import { CONFIG, longNameOf, SOURCES } from '../gateway/config/flags/sources.ts'

export function addServe(program: Command): void {
  addSettingFlags(program.command('serve'))
    .summary('run the gateway')
    .description(
      'Takes OpenAI-compatible requests, has a prefill worker read the prompt and sends the request on to the decode worker that the policy picks.',
    )
    .addHelpText(
      'after',
      `
Every flag has an environment variable (--port: ELDR_PORT) and a key in the file; docs/reference/config.md lists them. SIGTERM and Ctrl-C let running
streams end, a second one does not.

Examples:
  eldr serve --prefill http://10.0.0.1:8000 --decode http://10.0.1.1:8000 --decode http://10.0.1.2:8000
  eldr serve --config eldr.yaml --artifact task.artifact.safetensors --policy eldr`,
    )
    .action(async (_: unknown, command: Command) => {
      const { serveAction } = await import('./serve-action.ts')
      await serveAction(flagValues(command), async (settings, log) =>
        settings.server.processes > 1
          ? (await import('../gateway/scale/processes/supervisor.ts')).startProcesses(settings, log)
          : (await import('../gateway/app/start-gateway.ts')).startGateway(settings, log),
      )
    })
}

/** Values are left as they were typed: the schema checks them, those of the file and those of the environment alike, and all at once. */
export function addSettingFlags(command: Command): Command {
  for (const { flag, help } of [CONFIG, ...SOURCES]) if (flag !== undefined) command.option(flag, help)
  return command
}

/** What was typed, by long name. */
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
