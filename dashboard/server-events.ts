/** Server-sent events out of a response's body: EventSource cannot send a token, fetch can. */
export interface ServerEvent {
  readonly event: string
  readonly data: string
}

/** Takes pieces of text as they come; gives the events that are whole. */
export class EventReader {
  #text = ''

  push(piece: string): ServerEvent[] {
    const parts = (this.#text + piece).split('\n\n')
    this.#text = parts.pop()!
    return parts.flatMap(part => {
      const lines = part.split('\n')
      const of = (field: string) =>
        lines.filter(line => line.startsWith(`${field}: `)).map(line => line.slice(field.length + 2))
      const data = of('data')
      return data.length === 0 ? [] : [{ event: of('event').at(-1) ?? 'message', data: data.join('\n') }]
    })
  }
}
