/** The log: one JSON object per line, or readable text on a terminal. */
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
  if (!pretty) return pino({ ...options, timestamp: isoTime }, out ?? logOutput())
  return pino(
    { ...options, timestamp: false },
    { write: (line: string) => void (out ?? process.stderr).write(readable(line)) },
  )
}

let [second, secondText] = [-1, '']

/** `,"time":"…"` as pino's isoTime writes it. The date is formatted once per second, not per line. */
function isoTime(): string {
  const nowMs = Date.now()
  const nowSecond = Math.floor(nowMs / 1000)
  if (nowSecond !== second)
    [second, secondText] = [nowSecond, new Date(nowSecond * 1000).toISOString().slice(0, 20)]
  return `,"time":"${secondText}${String(nowMs % 1000).padStart(3, '0')}Z"`
}

/** Leaves out the message of a SyntaxError: it quotes the unparsed text, which may be part of a prompt. */
function describe(error: unknown): object {
  if (!(error instanceof Error)) return { type: typeof error }
  const frames = error.stack?.split('\n').filter(line => /^\s+at /.test(line)) ?? []
  const { code } = error as NodeJS.ErrnoException
  const message = error instanceof SyntaxError ? undefined : error.message
  return {
    type: error.name,
    code,
    message,
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

function readable(line: string): string {
  const { level, msg, ...rest } = JSON.parse(line) as Record<string, unknown> & {
    level: number
    msg?: string
  }
  const fields = Object.entries(rest).map(
    ([name, value]) => `${name}=${typeof value === 'string' ? oneLine(value) : JSON.stringify(value)}`,
  )
  const time = new Date().toISOString().slice(11, 19)
  const name = (LEVELS[level] ?? String(level)).padEnd(5)
  return `${time} ${name} ${oneLine(msg ?? '')}${fields.length > 0 ? `  ${fields.join(' ')}` : ''}\n`
}

/** Escapes control characters: text from outside may contain newlines and terminal escapes. */
function oneLine(text: string): string {
  return text.replaceAll(
    /[\p{Cc}\u2028\u2029]/gu,
    one => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}

/** Logs at most once per `everyMs` and key, with the number of occurrences since the last line. */
export class RateLimitedLog {
  readonly #everyMs: number
  readonly #last = new Map<string, { atMs: number; suppressed: number }>()

  constructor(everyMs = 60_000) {
    this.#everyMs = everyMs
  }

  /** Keys are never removed, so they must come from fixed lists. */
  say(key: string, nowMs: number, say: (times: number) => void): void {
    const last = this.#last.get(key)
    if (last !== undefined && nowMs - last.atMs < this.#everyMs) {
      last.suppressed++
      return
    }
    this.#last.set(key, { atMs: nowMs, suppressed: 0 })
    say(1 + (last?.suppressed ?? 0))
  }
}
