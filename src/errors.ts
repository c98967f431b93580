/**
 * Every failure that a person may meet, in one table. Codes are stable: scripts match on them, `docs/reference/errors.md` is generated from
 * this table and a test fails when it is stale. A line of text says what happened; `todo` says what the reader can do about it.
 */
export const ERRORS = {
  ELDR_FILE_UNREADABLE: {
    text: 'The file cannot be read',
    todo: 'Check that the path names a regular file and that this user may read it.',
  },
  ELDR_FILE_UNWRITABLE: {
    text: 'The file cannot be written',
    todo: 'Check that its folder exists, that this user may write there and that the disk has room.',
  },
  ELDR_FILE_TRUNCATED: {
    text: 'The file ends before its data does',
    todo: 'Copy or download the file again; compare its size with the original.',
  },
  ELDR_FILE_NOT_SAFETENSORS: {
    text: 'The file is not in safetensors format',
    todo: 'Check that it is the file you meant; ELDR reads .safetensors files only.',
  },
  ELDR_FILE_BAD_HEADER: {
    text: 'The safetensors header is broken',
    todo: 'Write the file again with the tool that made it; docs/reference/files.md says what a header must be.',
  },
  ELDR_FILE_WRONG_KIND: {
    text: 'The file is of another kind than the command needs',
    todo: 'Run `eldr inspect FILE` to see what it is.',
  },
  ELDR_FILE_UNKNOWN_VERSION: {
    text: 'The file has a format version that this release does not know',
    todo: 'Upgrade ELDR, or make the file again with this release.',
  },
  ELDR_FILE_BAD_METADATA: {
    text: 'The file’s metadata are missing or make no sense',
    todo: 'Make the file again; docs/reference/files.md lists the metadata of each kind.',
  },
  ELDR_TENSOR_MISSING: {
    text: 'The file lacks a tensor that is needed',
    todo: 'Capture it, or ask for something that the file’s tensors allow; `eldr inspect FILE` lists both.',
  },
  ELDR_TENSOR_BAD_TYPE: {
    text: 'A tensor has the wrong type',
    todo: 'Write the tensor with the type that docs/reference/files.md gives for it.',
  },
  ELDR_TENSOR_BAD_SHAPE: {
    text: 'A tensor has the wrong shape',
    todo: 'Write the tensor with the shape that docs/reference/files.md gives for it.',
  },
  ELDR_TENSOR_BAD_VALUE: {
    text: 'A tensor holds a value that cannot be',
    todo: 'Look for the fault in the capture; the value’s place is named.',
  },
  ELDR_MODEL_UNFIT: {
    text: 'The model’s files are broken, do not fit together, or are of a model that this worker cannot run',
    todo: 'Copy the model’s folder again; docs/guides/worker.md says what the tiny back end can run.',
  },
  ELDR_TRACE_TOO_SMALL: {
    text: 'The trace has too few requests for what is asked',
    todo: 'Calibrate with more prompts, or ask for less.',
  },
  ELDR_TRACE_OF_OTHER_PROMPTS: {
    text: 'The trace was not captured of these prompts',
    todo: 'Give the file of prompts that the trace was captured of, or capture one of yours: `eldr calibrate --split evaluation`.',
  },
  ELDR_FIT_NO_SIGNAL: {
    text: 'No signature can be fitted',
    todo: 'Calibrate with prompts that use different experts; a trace whose requests are all alike has nothing to route by.',
  },
  ELDR_FIT_TOO_LARGE: {
    text: 'The fit needs more memory than it may have',
    todo: 'Calibrate with fewer requests (some thousand are enough), keep fewer layers, or ask for fewer workers.',
  },
  ELDR_FIT_BAD_OPTION: {
    text: 'An option does not fit the file',
    todo: 'Change the option; `eldr inspect FILE` shows the file’s shape.',
  },
  ELDR_CONFIG_INVALID: {
    text: 'The configuration is not right',
    todo: 'Change what the problems name; docs/reference/config.md lists every key, and `eldr config print` shows what is in force and from where.',
  },
  ELDR_ENDPOINT_UNREACHABLE: {
    text: 'The server cannot be reached',
    todo: 'Check the address, and that the server runs and may be reached from here.',
  },
  ELDR_ENDPOINT_FAILED: {
    text: 'The server did not answer as it should',
    todo: 'Look into the server’s log; `curl` with the same address shows what it answers.',
  },
  ELDR_FILE_EXISTS: {
    text: 'The file is there already',
    todo: 'Name another file, or give --force to have it replaced.',
  },
  ELDR_CAPTURE_MISSING: {
    text: 'The server sends no expert counts',
    todo: 'Ask a vLLM server with EldrConnector and "record": true itself, or an `eldr worker`, and no gateway in front of it; docs/guides/calibration.md has the line that starts one.',
  },
  ELDR_CAPTURE_CHANGED: {
    text: 'The model is another one than before',
    todo: 'Calibrate against one server with one model; delete the journal to begin anew.',
  },
  ELDR_CALIBRATION_STOPPED: {
    text: 'The calibration stopped before its end',
    todo: 'Run the same command again: it goes on where it stopped.',
  },
  ELDR_JOURNAL_MISMATCH: {
    text: 'The journal beside the output belongs to something else',
    todo: 'Give the options and the prompts that it was begun with to go on, or delete it to begin anew.',
  },
  ELDR_PORT_TAKEN: {
    text: 'The address cannot be listened on',
    todo: 'Choose another port or host, or stop what holds it.',
  },
  ELDR_CLUSTER_FAILED: {
    text: 'The embedded cluster does not run',
    todo: 'Read what its processes said; `--verbose` shows all of it.',
  },
  ELDR_OUTPUTS_DIFFER: {
    text: 'Requests were not answered with the same text under every policy',
    todo: 'Routing must never change an output: please report it, with the command line and the seed.',
  },
  ELDR_USAGE: {
    text: 'The command line is not right',
    todo: 'Run the command with --help.',
  },
} as const satisfies Record<`ELDR_${string}`, { text: string; todo: string }>

export type ErrorCode = keyof typeof ERRORS

/** What is known of one failure. `found` and `expected` are phrases that read well after those words. */
export interface ErrorDetail {
  readonly file?: string
  readonly found?: string
  readonly expected?: string
  /** Replaces the table's advice where the place of failure knows better. */
  readonly todo?: string
  /** One line each where several things are wrong at once; the command line shows them above the message. */
  readonly problems?: readonly string[]
  readonly cause?: unknown
}

/**
 * A failure with a stable code and a message for a person.
 *
 * @example throw new EldrError('ELDR_TENSOR_MISSING', { file, found: 'prefill_counts', expected: 'decode_counts' })
 */
export class EldrError extends Error {
  readonly code: ErrorCode
  readonly detail: ErrorDetail

  constructor(code: ErrorCode, detail: ErrorDetail = {}) {
    super(messageOf(code, detail), detail.cause === undefined ? undefined : { cause: detail.cause })
    this.name = 'EldrError'
    this.code = code
    this.detail = detail
  }
}

function messageOf(code: ErrorCode, { file, found, expected, todo }: ErrorDetail): string {
  const where = file === undefined ? '' : `${file}: `
  const facts = [
    found === undefined ? '' : `found ${found}`,
    expected === undefined ? '' : `expected ${expected}`,
  ].filter(fact => fact !== '')
  return `${where}${ERRORS[code].text}${facts.length > 0 ? `: ${facts.join(', ')}` : ''}. ${todo ?? ERRORS[code].todo} [${code}]`
}
