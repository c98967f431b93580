const LONGEST = 80

/** A value that came out of a file, as it may stand in a message: on one line, without control characters, of bounded length. */
export function quoted(value: unknown): string {
  // A string is cut before it is spelled out, so that a header of one huge name costs nothing.
  const text = written(typeof value === 'string' ? value.slice(0, LONGEST + 1) : value) ?? 'nothing'
  return text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text
}

function written(value: unknown): string | undefined {
  try {
    return JSON.stringify(value)
  } catch {
    // What is parsed without a stack is written with one, which deep lists exhaust; a text has a longest length.
    return Array.isArray(value)
      ? 'a list too deep or too long to show'
      : 'a value too deep or too long to show'
  }
}
