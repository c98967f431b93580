/** One operation of the API. `document.ts` converts it to OpenAPI. */
import type { RefusalCode } from '../../http/refusal.ts'

export type Method = 'get' | 'post' | 'put' | 'delete'

export const TAGS = {
  generation: 'OpenAI-compatible text generation.',
  workers: 'Add, drain and remove workers at runtime.',
  routing: 'Change policy, artifact and clusters at runtime.',
  look: 'Decisions, requests, settings and log level.',
  dashboard: 'Dashboard page and its data.',
  gateway: 'Health, metrics and version of the gateway.',
} as const

/**
 * Required authentication. client: API key. admin: admin token. viewer: admin token, or none with an open
 * dashboard. public: none.
 */
export type Access = 'client' | 'admin' | 'viewer' | 'public'

export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json }
export type JsonObject = { readonly [key: string]: Json }

export interface Media {
  /**
   * Name in components/schemas, or a schema. Undefined for a stream of events, which OpenAPI 3.1 cannot
   * describe.
   */
  readonly schema?: string | JsonObject
  readonly example?: Json
  /** Schema of the data of each type of server-sent event. */
  readonly events?: Readonly<Record<string, string>>
}

export interface ResponseSpec {
  readonly text: string
  readonly content?: Readonly<Record<string, Media>>
  /** Names in components/headers, in addition to X-Request-Id. */
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
  readonly responses: Readonly<Record<string, ResponseSpec>>
  /** Errors of this operation, in addition to those of any request. */
  readonly refuses: readonly RefusalCode[]
  /** 4xx responses of workers are passed on unchanged. */
  readonly passesRefusals?: boolean
}

export const json = (schema: string | JsonObject, example?: Json): Readonly<Record<string, Media>> => ({
  'application/json': { schema, example },
})
