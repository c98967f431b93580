/** docs/reference/cli.md, made from the commands as commander has them. */
import type { Argument, Command, Option } from 'commander'

/** A program's commands, each with its arguments, options and examples. */
export function cliPage(program: Command): string {
  const commands = program.commands.flatMap(withParts)
  return [
    '# Commands',
    '',
    `${program.description()} \`eldr --help\` lists the commands, \`eldr COMMAND --help\` has what stands here. In a clone write \`npx eldr\`.`,
    '',
    'Exit codes: 0 for success, 1 for a failure, 2 for a command line or a configuration that is not right, 130 after a second Ctrl-C. Results go to standard output, progress and errors to standard error. `--json` prints one JSON object in place of tables.',
    '',
    '| command | what it does |',
    '|---|---|',
    ...commands.map(
      command => `| [\`${nameOf(command)}\`](#${anchorOf(command)}) | ${cell(command.summary())} |`,
    ),
    '',
    ...commands.flatMap(sectionOf),
    'This page is made by `npm run docs` from `src/cli/`.',
    '',
  ].join('\n')
}

/** A command that only holds others stands for them. */
function withParts(command: Command): Command[] {
  return command.commands.length === 0 ? [command] : command.commands.flatMap(withParts)
}

function nameOf(command: Command): string {
  return command.parent === null ? command.name() : `${nameOf(command.parent)} ${command.name()}`
}

const anchorOf = (command: Command) => nameOf(command).replaceAll(' ', '-')

function sectionOf(command: Command): string[] {
  const options = command.options.filter(({ hidden }) => !hidden)
  return [
    `## ${nameOf(command)}`,
    '',
    command.description(),
    '',
    `\`${nameOf(command)} ${command.usage()}\``,
    '',
    ...table(['argument', 'meaning'], command.registeredArguments.map(argumentRow)),
    ...table(['option', 'meaning', 'default'], options.map(optionRow)),
    ...examplesOf(command),
  ]
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string[] {
  if (rows.length === 0) return []
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`
  return [line(head), line(head.map(() => '---')).replaceAll(' ', ''), ...rows.map(line), '']
}

function argumentRow(argument: Argument): string[] {
  const name = argument.required ? `<${argument.name()}>` : `[${argument.name()}]`
  return [`\`${name}\``, cell(argument.description)]
}

function optionRow({ flags, description, mandatory, argChoices, defaultValue }: Option): string[] {
  // What help says in words of a default stands in its own column here.
  const [, words = description, said] = /^(.*?)\s*\(default: (.*)\)$/s.exec(description) ?? []
  const choices =
    argChoices === undefined ? '' : `; one of ${argChoices.map(choice => `\`${choice}\``).join(', ')}`
  return [
    `\`${flags}\``,
    `${cell(words)}${choices}${mandatory ? '; needed' : ''}`,
    cell(said ?? shown(defaultValue)),
  ]
}

function shown(value: unknown): string {
  if (
    value === undefined ||
    value === false ||
    value === true ||
    (Array.isArray(value) && value.length === 0)
  )
    return ''
  return `\`${Array.isArray(value) ? value.join(',') : String(value as string | number)}\``
}

/** What a command adds to its help, but for its title. */
function examplesOf(command: Command): string[] {
  let help = ''
  command.configureOutput({ writeOut: text => void (help += text) }).outputHelp()
  const [words = '', examples] = help
    .slice(command.helpInformation().length)
    .trim()
    .split(/^Examples:\n/m)
  const said = words.trim() === '' ? [] : [words.trim().replaceAll(/\s*\n\s*/g, ' '), '']
  if (examples === undefined) return said
  const reason = 'examples of the help; pages run these commands with files and addresses that exist'
  return [
    ...said,
    `<!-- not run: ${reason} -->`,
    '```sh',
    ...examples.split('\n').map(line => line.trim()),
    '```',
    '',
  ]
}

const cell = (text: string) =>
  text
    .replaceAll('|', String.raw`\|`)
    .replaceAll('<', '&lt;')
    .replaceAll(/\s*\n\s*/g, ' ')
