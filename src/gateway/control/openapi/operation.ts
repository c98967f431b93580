/** One operation of the document, in the words of the gateway: `document.ts` makes OpenAPI of it. */
import type { RefusalCode } from '../../http/refusal.ts'

export type Method = 'get' | 'post' | 'put' | 'delete'

export const TAGS = {
  generation: 'Text generation, as OpenAI’s clients ask for it.',
  workers: 'Workers come, rest and go while the gateway runs.',
  routing: 'Policy, artifact and clusters while the gateway runs.',
  look: 'What the gateway did and does.',
  dashboard: 'The page for people.',
  gateway: 'How the gateway is.',
} as const

/** Who may ask: whoever has a key for /v1, the admin token, either of those who may look at an open dashboard, or anybody. */
export type Access = 'client' | 'admin' | 'watcher' | 'anybody'

export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json }
export type JsonObject = { readonly [key: string]: Json }

export interface Media {
  /** Name under components/schemas, or a schema. A stream of events has none: OpenAPI 3.1 cannot say what its parts are. */
  readonly schema?: string | JsonObject
  readonly example?: Json
  /** Of server-sent events: the schema of the data of each kind. */
  readonly events?: Readonly<Record<string, string>>
}

export interface Answer {
  readonly words: string
  readonly content?: Readonly<Record<string, Media>>
  /** Names under components/headers, beside that of the request's id. */
  readonly headers?: Readonly<Record<string, string>>
  readonly links?: JsonObject
}

export interface Parameter {
  readonly name: string
  readonly in: 'path' | 'query' | 'header'
  readonly description: string
  readonly schema: JsonObject
  readonly example?: Json
}

export interface Operation {
  readonly method: Method
  readonly path: string
  readonly id: string
  readonly tag: keyof typeof TAGS
  readonly summary: string
  readonly description?: string
  readonly access: Access
  readonly parameters?: readonly Parameter[]
  readonly body?: { readonly required: boolean; readonly content: Readonly<Record<string, Media>> }
  readonly answers: Readonly<Record<string, Answer>>
  /** What the gateway refuses it with, beside what any request may be refused with. */
  readonly refuses: readonly RefusalCode[]
  /** What a worker refuses is passed on as it is. */
  readonly passesRefusals?: boolean
}

export const json = (schema: string | JsonObject, example?: Json): Readonly<Record<string, Media>> => ({
  'application/json': { schema, ...(example !== undefined && { example }) },
})
