/** Reads server-sent events from a response body: unlike EventSource, fetch can send a token. */
export interface ServerEvent {
  readonly event: string
  readonly data: string
}

/** Takes chunks of text and returns complete events. */
export class EventReader {
  #text = ''

  push(chunk: string): ServerEvent[] {
    const parts = (this.#text + chunk).split('\n\n')
    this.#text = parts.pop()!
    return parts.flatMap(part => {
      const lines = part.split('\n')
      const valuesOf = (field: string) =>
        lines.filter(line => line.startsWith(`${field}: `)).map(line => line.slice(field.length + 2))
      const data = valuesOf('data')
      return data.length === 0
        ? []
        : [{ event: valuesOf('event').at(-1) ?? 'message', data: data.join('\n') }]
    })
  }
}
