import type { Command } from 'commander'

export interface InspectFlags {
  readonly json?: true
}

export function addInspect(program: Command): void {
  program
    .command('inspect')
    .summary('show what is in a trace, an artifact or a placement')
    .description(
      'Reads a trace, an artifact or a placement, checks every value, and shows what a person would want to know of it.',
    )
    .argument('<file>', 'any .safetensors file of ELDR')
    .option('--json', 'print it as JSON')
    .action(async (file: string, flags: InspectFlags) =>
      (await import('./inspect-action.ts')).inspectAction(file, flags),
    )
}
