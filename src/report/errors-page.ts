import { ERRORS } from '../errors.ts'

/** Error responses of the gateway by code. Passed in, because this folder may not import the gateway. */
export type ErrorResponses = Readonly<Record<string, { readonly status: number; readonly message: string }>>

/** docs/reference/errors.md, from both tables of errors. */
export function errorsPage(responses: ErrorResponses): string {
  const rows = Object.entries(ERRORS).map(([code, { text, todo }]) => `| \`${code}\` | ${text}. | ${todo} |`)
  const responseRows = Object.entries(responses).map(
    ([code, { status, message }]) => `| \`${code}\` | ${status} | ${message} |`,
  )
  return [
    '# Errors',
    '',
    'Every error has a stable code. The message names the file, what was found and what was expected, and ends with the code in brackets. Match on the code, not on the text.',
    '',
    'Exit codes: 0 for success, 1 for a failure, 2 for an invalid command line or configuration.',
    '',
    '| code | what happened | what to do |',
    '|---|---|---|',
    ...rows,
    '',
    '## Error responses of the gateway',
    '',
    'If the gateway refuses or fails a request, the response body has OpenAI’s format (`{"error": {"message", "type", "param", "code"}}`) with one of these codes, which is also in the header `x-eldr-error-code`. Messages may have more detail than here; except under `/eldr` they do not name workers or addresses. A 4xx response of a worker is passed on unchanged. In a stream that has started, the same object is sent as the last event.',
    '',
    '| code | status | what happened |',
    '|---|---|---|',
    ...responseRows,
    '',
    '`npm run docs` writes this page from `src/errors.ts` and `src/gateway/http/refusal.ts`.',
    '',
  ].join('\n')
}
