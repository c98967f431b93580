/** Checks responses of a running gateway against the document that it serves. */
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'

// oxlint-disable-next-line typescript/no-explicit-any -- a document is what it is
export type Json = any

export interface Asked {
  readonly method: string
  /** As in the document. */
  readonly path: string
}

/** A response, with header names in lower case. */
export interface Answered {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

export class Conformance {
  readonly document: Json
  /** Responses that were checked and are correct, such as 'GET /health 200'. */
  readonly seen = new Set<string>()
  readonly #ajv = new Ajv2020({ strict: false, validateFormats: false, allErrors: true })

  readonly #compiled = new Map<string, ValidateFunction>()

  constructor(document: Json) {
    this.document = document
    this.#ajv.addSchema(document, 'document')
  }

  static async of(url: string): Promise<Conformance> {
    return new Conformance(await (await fetch(`${url}/openapi.json`)).json())
  }

  get operations(): readonly (Asked & { readonly operation: Json })[] {
    return Object.entries(this.document.paths as Json).flatMap(([path, methods]) =>
      Object.entries(methods as Json).map(([method, operation]) => ({
        method: method.toUpperCase(),
        path,
        operation,
      })),
    )
  }

  /** Every documented response, such as 'GET /health 200'. */
  get documented(): readonly string[] {
    return this.operations.flatMap(({ method, path, operation }) =>
      Object.keys(operation.responses).map(status => `${method} ${path} ${status}`),
    )
  }

  /** Why a value is invalid, as one text; undefined if it is valid. */
  wrongWith(schema: Json, value: unknown): string | undefined {
    const text = JSON.stringify(schema)
    const validate = this.#compiled.get(text) ?? this.#ajv.compile(schema)
    this.#compiled.set(text, validate)
    return validate(value) ? undefined : this.#ajv.errorsText(validate.errors)
  }

  /** Throws if a response does not match the document. */
  check({ method, path }: Asked, { status, headers, body }: Answered): void {
    const name = `${method} ${path} ${status}`
    const fail = (what: string): never => {
      throw new Error(`${name}: ${what}: ${body.slice(0, 500)}`)
    }
    const { responses } = this.document.paths[path]?.[method.toLowerCase()] ?? fail('no such operation')
    const key =
      [String(status), `${String(status)[0]}XX`].find(name => name in responses) ??
      fail('the status is not documented')
    const response = this.#at(responses[key])
    for (const [header, entry] of Object.entries<Json>(response.headers ?? {})) {
      const { required, schema } = this.#at(entry)
      const value = headers[header.toLowerCase()]
      if (value === undefined) {
        if (required === true) fail(`no ${header}`)
      } else if (!this.#ajv.validate(schema, schema.type === 'integer' ? Number(value) : value))
        fail(`${header} is ${value}`)
    }
    if (response.content === undefined) {
      if (body !== '') fail('a body')
    } else this.#checkBody(response.content, headers['content-type'] ?? fail('no type'), body, fail)
    this.seen.add(`${method} ${path} ${key}`)
  }

  #checkBody(content: Json, type: string, body: string, fail: (what: string) => never): void {
    const media = content[type.split(';', 1)[0]!] ?? fail(`${type} is not documented`)
    if (type.startsWith('application/json')) {
      const wrong = this.wrongWith(inDocument(media.schema), JSON.parse(body))
      if (wrong !== undefined) fail(wrong)
    }
    if (!type.startsWith('text/event-stream')) return
    for (const { event, data } of eventsIn(body)) {
      if (data === '[DONE]') continue
      const schema = media['x-events'][event] ?? fail(`the event ${event} is not documented`)
      const wrong = this.wrongWith(inDocument(schema), JSON.parse(data))
      if (wrong !== undefined) fail(`${event}: ${wrong}`)
    }
  }

  /** Follows a reference. */
  #at(entry: Json): Json {
    if (typeof entry.$ref !== 'string') return entry
    return (entry.$ref as string)
      .slice(2)
      .split('/')
      .reduce((node, key) => node[key], this.document)
  }
}

/** A schema whose references lead into the document. */
export function inDocument(schema: Json): Json {
  return JSON.parse(JSON.stringify(schema).replaceAll('"$ref":"#', '"$ref":"document#'))
}

export function eventsIn(text: string): { readonly event: string; readonly data: string }[] {
  return text.split('\n\n').flatMap(part => {
    const data = /^data: (.*)$/m.exec(part)?.[1]
    return data === undefined ? [] : [{ event: /^event: (.*)$/m.exec(part)?.[1] ?? 'message', data }]
  })
}
