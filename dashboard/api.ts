/**
 * Client of the admin API; sends the token if there is one. URLs are relative, so that a proxy may add a path
 * prefix.
 */
import { token } from './state.ts'

export class ApiError extends Error {
  readonly status: number

  constructor(status: number, message: string) {
    super(message)
    this.status = status
  }
}

export function authorization(): Record<string, string> {
  return token.value === '' ? {} : { authorization: `Bearer ${token.value}` }
}

export async function ask<T>(path: string, init: RequestInit = {}): Promise<T> {
  const response = await fetch(`eldr/${path}`, {
    ...init,
    cache: 'no-store',
    headers: { ...authorization(), ...(init.headers as Record<string, string>) },
  })
  const text = await response.text()
  if (response.ok) return JSON.parse(text) as T
  throw new ApiError(
    response.status,
    messageIn(text) ?? `The gateway responded with status ${response.status}.`,
  )
}

export function change<T>(method: 'PUT' | 'POST' | 'DELETE', path: string, body?: object | Blob): Promise<T> {
  if (body instanceof Blob)
    return ask<T>(path, { method, body, headers: { 'content-type': 'application/octet-stream' } })
  return ask<T>(path, {
    method,
    body: JSON.stringify(body ?? {}),
    headers: { 'content-type': 'application/json' },
  })
}

function messageIn(text: string): string | undefined {
  try {
    return (JSON.parse(text) as { error?: { message?: string } }).error?.message
  } catch {
    return undefined
  }
}
