const LONGEST = 80

/**
 * A value from a file, formatted for a message: on one line, without control characters, of bounded length.
 */
export function quoted(value: unknown): string {
  // A string is cut before it is escaped, so that a header with one huge name costs nothing.
  const text = written(typeof value === 'string' ? value.slice(0, LONGEST + 1) : value) ?? 'nothing'
  return text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text
}

function written(value: unknown): string | undefined {
  try {
    return JSON.stringify(value)
  } catch {
    // JSON.stringify uses the stack, which deep lists exhaust, and a string has a maximum length.
    return Array.isArray(value)
      ? 'a list too deep or too long to show'
      : 'a value too deep or too long to show'
  }
}
