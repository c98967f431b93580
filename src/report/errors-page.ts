import { ERRORS } from '../errors.ts'

/** docs/errors.md, made from the table of errors. */
export function errorsPage(): string {
  const rows = Object.entries(ERRORS).map(([code, { text, todo }]) => `| \`${code}\` | ${text}. | ${todo} |`)
  return [
    '# Errors',
    '',
    'Every failure that ELDR reports has a stable code. A message names the file, what was found and what was expected; the code stands at its end in brackets. Match on the code, not on the text.',
    '',
    'Exit codes: 0 for success, 1 for a failure, 2 for a command line that is not right.',
    '',
    '| code | what happened | what to do |',
    '|---|---|---|',
    ...rows,
    '',
    'This page is made by `npm run docs` from `src/errors.ts`.',
    '',
  ].join('\n')
}
