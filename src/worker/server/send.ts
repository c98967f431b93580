/** Whole responses. Sends nothing if the client is gone or a response was already sent. */
import type { ServerResponse } from 'node:http'
import { RequestFault } from '../engine/request-fault.ts'
import { ApiError, errorBody } from './api-error.ts'

export function sendJson(
  response: ServerResponse,
  status: number,
  body: string,
  headers: Readonly<Record<string, string>> = {},
): void {
  send(response, status, body, 'application/json', headers)
}

export function send(
  response: ServerResponse,
  status: number,
  body: string,
  contentType: string,
  headers: Readonly<Record<string, string>> = {},
): void {
  if (response.headersSent || response.destroyed) return
  const bytes = Buffer.from(body)
  response
    .writeHead(status, { 'content-type': contentType, 'content-length': bytes.length, ...headers })
    .end(bytes)
}

export function sendError(response: ServerResponse, error: ApiError): void {
  const { retryAfterSeconds: seconds } = error
  sendJson(
    response,
    error.status,
    errorBody(error),
    seconds === undefined ? {} : { 'retry-after': String(seconds) },
  )
}

/** Unknown errors become 500. */
export function asApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error
  return error instanceof RequestFault
    ? new ApiError(error.status, error.message)
    : new ApiError(500, 'Internal server error')
}
