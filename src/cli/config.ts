import type { Command } from 'commander'
import { addSettingFlags } from './serve.ts'

export interface ConfigFlags {
  readonly json?: true
}

export function addConfig(program: Command): void {
  const config = program
    .command('config')
    .summary('check, print or describe the gateway’s configuration')
    .description(
      'Works with the configuration of `eldr serve`. docs/reference/config.md lists every key with its flag and environment variable.',
    )
  config
    .command('check')
    .summary('check a configuration file and list all problems')
    .description(
      'Checks a configuration file alone, without flags and environment; `eldr config print --config FILE` checks all of them together.',
    )
    .argument('<file>', 'YAML or JSON file')
    .action(async (file: string) => (await import('./config-action.ts')).checkAction(file))
  addSettingFlags(config.command('print'))
    .summary('show the effective values and where each comes from')
    .description(
      'Resolves flags, environment, file and defaults as `eldr serve` does, and prints the result as YAML with secrets masked.',
    )
    .option('--json', 'print JSON instead of YAML')
    .action(async (flags: ConfigFlags, command: Command) =>
      (await import('./config-action.ts')).printAction(flags, command),
    )
  config
    .command('schema')
    .summary('print the JSON Schema of the configuration file')
    .description('Prints the JSON Schema of the configuration file for editors and other programs.')
    .action(async () => (await import('./config-action.ts')).schemaAction())
}
