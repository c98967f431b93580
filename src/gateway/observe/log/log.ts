/** One JSON object a line, or the same for eyes where a person looks. What is said often is said once a minute. */
import { type Logger, pino } from 'pino'
import type { ObserveSettings } from '../../config/settings.ts'
import { logOutput } from './log-output.ts'

export type Log = Logger

export function createLog(
  { logLevel, logFormat }: Pick<ObserveSettings, 'logLevel' | 'logFormat'>,
  out?: NodeJS.WriteStream,
): Log {
  const pretty = logFormat === 'pretty' || (logFormat === 'auto' && (out ?? process.stderr).isTTY)
  const options = { level: logLevel, base: null, serializers: { err: describe } }
  if (!pretty) return pino({ ...options, timestamp: pino.stdTimeFunctions.isoTime }, out ?? logOutput())
  return pino(
    { ...options, timestamp: false },
    { write: (line: string) => void (out ?? process.stderr).write(forEyes(line)) },
  )
}

/** Parsers put what they could not read into their message, and that may be part of a prompt or of an answer. */
function describe(error: unknown): object {
  if (!(error instanceof Error)) return { type: typeof error }
  const frames = error.stack?.split('\n').filter(line => /^\s+at /.test(line)) ?? []
  const { code } = error as NodeJS.ErrnoException
  const message = error instanceof SyntaxError ? undefined : error.message
  return {
    type: error.name,
    ...(code !== undefined && { code }),
    ...(message !== undefined && { message }),
    stack: frames.join('\n'),
  }
}

const LEVELS: Readonly<Record<number, string>> = {
  20: 'debug',
  30: 'info',
  40: 'warn',
  50: 'error',
  60: 'fatal',
}

function forEyes(line: string): string {
  const { level, msg, ...rest } = JSON.parse(line) as Record<string, unknown> & {
    level: number
    msg?: string
  }
  const more = Object.entries(rest).map(
    ([name, value]) => `${name}=${typeof value === 'string' ? oneLine(value) : JSON.stringify(value)}`,
  )
  return `${new Date().toISOString().slice(11, 19)} ${(LEVELS[level] ?? String(level)).padEnd(5)} ${oneLine(msg ?? '')}${more.length > 0 ? `  ${more.join(' ')}` : ''}\n`
}

/** Others' words may hold line ends and codes for terminals. */
function oneLine(text: string): string {
  return text.replaceAll(
    /[\p{Cc}\u2028\u2029]/gu,
    one => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}

/** Calls at most once in `everyMs` for each key, with how often it was wanted since. */
export class RateLimitedLog {
  readonly #everyMs: number
  readonly #last = new Map<string, { atMs: number; missed: number }>()

  constructor(everyMs = 60_000) {
    this.#everyMs = everyMs
  }

  /** Keys come from fixed lists. */
  say(key: string, nowMs: number, say: (times: number) => void): void {
    const last = this.#last.get(key)
    if (last !== undefined && nowMs - last.atMs < this.#everyMs) {
      last.missed++
      return
    }
    this.#last.set(key, { atMs: nowMs, missed: 0 })
    say(1 + (last?.missed ?? 0))
  }
}
