import { ERRORS } from '../errors.ts'

/** What the gateway answers when it does not serve a request, by code; its table lies in a folder that this one does not know. */
export type AnswerTable = Readonly<Record<string, { readonly status: number; readonly message: string }>>

/** docs/reference/errors.md, made from the tables of errors. */
export function errorsPage(answers: AnswerTable): string {
  const rows = Object.entries(ERRORS).map(([code, { text, todo }]) => `| \`${code}\` | ${text}. | ${todo} |`)
  const answerRows = Object.entries(answers).map(
    ([code, { status, message }]) => `| \`${code}\` | ${status} | ${message} |`,
  )
  return [
    '# Errors',
    '',
    'Every failure that ELDR reports has a stable code. A message names the file, what was found and what was expected; the code stands at its end in brackets. Match on the code, not on the text.',
    '',
    'Exit codes: 0 for success, 1 for a failure, 2 for a command line or a configuration that is not right.',
    '',
    '| code | what happened | what to do |',
    '|---|---|---|',
    ...rows,
    '',
    '## Answers of the gateway',
    '',
    'Where the gateway itself refuses or fails a request, the body has OpenAI’s shape (`{"error": {"message", "type", "param", "code"}}`) with one of these codes, which also stands in the header `x-eldr-error-code`. Messages may say more than the sentence here; they name neither workers nor addresses, but on the routes under `/eldr`. What a worker answers with a status of 4xx is passed on as it is. A stream that has begun ends with the same object in an event of its own.',
    '',
    '| code | status | what happened |',
    '|---|---|---|',
    ...answerRows,
    '',
    'This page is made by `npm run docs` from `src/errors.ts` and `src/gateway/http/refusal.ts`.',
    '',
  ].join('\n')
}
