/**
 * Every error for users, in one table. Codes are stable, because scripts match on them. A test fails if
 * `docs/reference/errors.md`, which is generated from this table, is stale. `text` says what happened, `todo`
 * what to do.
 */
export const ERRORS = {
  ELDR_FILE_UNREADABLE: {
    text: 'The file cannot be read',
    todo: 'Check that the path names a regular file and that this user may read it.',
  },
  ELDR_FILE_UNWRITABLE: {
    text: 'The file cannot be written',
    todo: 'Check that its folder exists, that this user may write there and that the disk has space.',
  },
  ELDR_FILE_TRUNCATED: {
    text: 'The file is truncated',
    todo: 'Copy or download the file again; compare its size with the original.',
  },
  ELDR_FILE_NOT_SAFETENSORS: {
    text: 'The file is not in safetensors format',
    todo: 'Check that it is the file you meant; ELDR reads .safetensors files only.',
  },
  ELDR_FILE_BAD_HEADER: {
    text: 'The safetensors header is broken',
    todo: 'Write the file again with the tool that made it; docs/reference/files.md describes the header.',
  },
  ELDR_FILE_WRONG_KIND: {
    text: 'The file is not of the kind that the command needs',
    todo: 'Run `eldr inspect FILE` to see what it is.',
  },
  ELDR_FILE_UNKNOWN_VERSION: {
    text: 'This release does not support the format version of the file',
    todo: 'Upgrade ELDR, or make the file again with this release.',
  },
  ELDR_FILE_BAD_METADATA: {
    text: 'The file’s metadata are missing or invalid',
    todo: 'Make the file again; docs/reference/files.md lists the metadata of each kind.',
  },
  ELDR_TENSOR_MISSING: {
    text: 'A required tensor is missing',
    todo: 'Capture the tensor, or choose an option that does not need it; `eldr inspect FILE` lists the tensors and what they allow.',
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
    text: 'A tensor has an invalid value',
    todo: 'Fix the capture that wrote it; the message gives the position of the value.',
  },
  ELDR_MODEL_UNFIT: {
    text: 'The model’s files are broken or inconsistent, or this worker cannot run the model',
    todo: 'Copy the model’s folder again; docs/guides/worker.md lists what the tiny back end can run.',
  },
  ELDR_TRACE_TOO_SMALL: {
    text: 'The trace has too few requests',
    todo: 'Calibrate with more prompts, or use fewer workers or a smaller --holdout.',
  },
  ELDR_TRACE_OF_OTHER_PROMPTS: {
    text: 'The trace was captured from other prompts',
    todo: 'Use the prompts file that the trace was captured from, or capture a trace from yours: `eldr calibrate --split evaluation`.',
  },
  ELDR_FIT_NO_SIGNAL: {
    text: 'No signature can be fitted',
    todo: 'Calibrate with prompts that use different experts; requests that are all alike cannot be routed by experts.',
  },
  ELDR_FIT_TOO_LARGE: {
    text: 'The fit needs too much memory',
    todo: 'Calibrate with fewer requests (a few thousand are enough), keep fewer layers, or use fewer workers.',
  },
  ELDR_FIT_BAD_OPTION: {
    text: 'An option does not match the file',
    todo: 'Change the option; `eldr inspect FILE` shows the file’s shape.',
  },
  ELDR_CONFIG_INVALID: {
    text: 'Invalid configuration',
    todo: 'Fix the listed problems; docs/reference/config.md lists every key, and `eldr config print` shows the settings in force and their sources.',
  },
  ELDR_ENDPOINT_UNREACHABLE: {
    text: 'The server cannot be reached',
    todo: 'Check the address, and that the server is running and reachable from here.',
  },
  ELDR_ENDPOINT_FAILED: {
    text: 'The server did not respond as expected',
    todo: 'Check the server’s log; `curl` with the same address shows its response.',
  },
  ELDR_FILE_EXISTS: {
    text: 'The file already exists',
    todo: 'Use another file name, or --force to replace it.',
  },
  ELDR_CAPTURE_MISSING: {
    text: 'The server sends no expert counts',
    todo: 'Use the address of a vLLM server with EldrConnector, or of an `eldr worker`, not of a gateway; docs/guides/calibration.md has the command that starts one.',
  },
  ELDR_CAPTURE_CHANGED: {
    text: 'The model has changed',
    todo: 'Calibrate against one server with one model; delete the journal to start over.',
  },
  ELDR_CALIBRATION_STOPPED: {
    text: 'The calibration stopped early',
    todo: 'Run the same command again: it continues where it stopped.',
  },
  ELDR_JOURNAL_MISMATCH: {
    text: 'The journal next to the output belongs to another calibration',
    todo: 'Use the options and prompts that it was started with to continue, or delete it to start over.',
  },
  ELDR_PORT_TAKEN: {
    text: 'Cannot listen on the address',
    todo: 'Choose another port or host, or stop the process that uses it.',
  },
  ELDR_REPLACE_FAILED: {
    text: 'The gateway was not replaced and continues to serve',
    todo: 'Fix what kept the new process from starting; its output is in the log of the gateway.',
  },
  ELDR_REPLACE_RUNNING: {
    text: 'The gateway is already being replaced',
    todo: 'Wait until that has ended, then try again.',
  },
  ELDR_REPLACE_NONE: {
    text: 'There is no gateway to replace',
    todo: 'Start one without --replace, or use the user, host, port and TMPDIR of the one that runs.',
  },
  ELDR_CLUSTER_FAILED: {
    text: 'The embedded cluster is not running',
    todo: 'Read the output of its processes; `--verbose` shows all of it.',
  },
  ELDR_EXPERIMENT_ENDED: {
    text: 'The gateway ended the experiment',
    todo: 'The gateway’s log says why. It has its policy from before the experiment, or, if it was restarted as a single process, the configured one. Start the experiment again.',
  },
  ELDR_OUTPUTS_DIFFER: {
    text: 'Responses differ between policies',
    todo: 'Routing must never change an output: please report this, with the command line and the seed.',
  },
  ELDR_ADAPT_FOLDER: {
    text: 'The artifact cannot be swapped: the folder of live recalibration is not writable',
    todo: 'Set adapt.folder (--adapt-folder, ELDR_ADAPT_FOLDER) to a folder that the gateway may create or write, or set adapt.mode to off.',
  },
  ELDR_ADAPT_TIMEOUT: {
    text: 'The refit from live requests took too long and was stopped',
    todo: 'Set a smaller adapt.sampleRequests, or give the gateway more CPU. It is tried again later.',
  },
  ELDR_USAGE: {
    text: 'Invalid command line',
    todo: 'Run the command with --help.',
  },
} as const satisfies Record<`ELDR_${string}`, { text: string; todo: string }>

export type ErrorCode = keyof typeof ERRORS

/** Details of one error. `found` and `expected` are phrases that follow those words. */
export interface ErrorDetail {
  readonly file?: string
  readonly found?: string
  readonly expected?: string
  /** Replaces the table's advice with a more specific one. */
  readonly todo?: string
  /** One line per problem, if there are several; the command line shows them above the message. */
  readonly problems?: readonly string[]
  readonly cause?: unknown
}

/**
 * An error with a stable code and a message for users.
 *
 * @example throw new EldrError('ELDR_TENSOR_MISSING', { file, found: 'prefill_counts', expected:
 * 'decode_counts' })
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
