import type { Command } from 'commander'

export interface InspectFlags {
  readonly json?: true
}

export function addInspect(program: Command): void {
  program
    .command('inspect')
    .summary('show the contents of a trace, an artifact or a placement')
    .description('Reads a trace, an artifact or a placement, checks every value and prints a summary.')
    .argument('<file>', '.safetensors file written by ELDR')
    .option('--json', 'print the summary as JSON')
    .action(async (file: string, flags: InspectFlags) =>
      (await import('./inspect-action.ts')).inspectAction(file, flags),
    )
}
