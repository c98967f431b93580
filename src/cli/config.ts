import type { Command } from 'commander'
import { addSettingFlags } from './serve.ts'

export interface ConfigFlags {
  readonly json?: true
}

export function addConfig(program: Command): void {
  const config = program
    .command('config')
    .summary('check, print or describe the configuration of a gateway')
    .description(
      'The configuration of `eldr serve`: docs/reference/config.md lists every key with its flag and environment variable.',
    )
  config
    .command('check')
    .summary('list all that is wrong with a file')
    .description(
      'Checks a configuration file by itself, without flags and environment; `eldr config print --config FILE` checks all together.',
    )
    .argument('<file>', 'YAML or JSON')
    .action(async (file: string) => (await import('./config-action.ts')).checkAction(file))
  addSettingFlags(config.command('print'))
    .summary('show the values in force and where each came from')
    .description(
      'Resolves flags, environment, file and defaults as `eldr serve` does, and prints the result as YAML, secrets masked.',
    )
    .option('--json', 'print it as JSON')
    .action(async (flags: ConfigFlags, command: Command) =>
      (await import('./config-action.ts')).printAction(flags, command),
    )
  config
    .command('schema')
    .summary('print the JSON Schema of the file')
    .description('Prints the JSON Schema of the configuration file, for editors and other programs.')
    .action(async () => (await import('./config-action.ts')).schemaAction())
}
