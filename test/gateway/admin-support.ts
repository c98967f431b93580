/**
 * Helpers for tests of the admin API: calls as an operator makes them, and small artifacts of the fake
 * workers' model.
 */
import { join } from 'node:path'
import { expect } from 'vitest'
import { writeArtifact } from '../../src/fit/artifact-write.ts'
import type { Artifact } from '../../src/fit/artifact.ts'
import { writeSafetensors } from '../../src/trace/safetensors-write.ts'
import { fitFile } from '../data.ts'
import { makeCounts } from '../fake-worker/index.ts'
import { type Cluster, SHAPE } from './cluster.ts'

const TOKENS = 32
/** Counts of the fake workers' hand-offs. */
const VARIANTS = 8

/** Fitted on requests like those that the fake prefill workers see. */
export async function smallArtifact(
  folder: string,
  clusters: number,
  shape: typeof SHAPE | { layers: number; experts: number; topK: number } = SHAPE,
): Promise<{ readonly path: string; readonly artifact: Artifact }> {
  const requests = 6 * VARIANTS
  const { layers, experts, topK } = shape
  const counts = new Uint16Array(requests * layers * experts)
  for (let r = 0; r < requests; r++) {
    const tokens = TOKENS + Math.floor(r / VARIANTS)
    counts.set(makeCounts({ layers, experts, topK, tokens }, 1000 + (r % VARIANTS)), r * layers * experts)
  }
  const trace = join(folder, `trace-${layers}-${clusters}.safetensors`)
  await writeSafetensors(trace, {
    metadata: {
      format: 'eldr.trace.v1',
      model: 'fake',
      layers: `${layers}`,
      experts: `${experts}`,
      top_k: `${topK}`,
    },
    tensors: {
      prefill_counts: { dtype: 'U16', shape: [requests, layers, experts], data: counts },
      prompt_tokens: {
        dtype: 'U16',
        shape: [requests],
        data: Uint16Array.from({ length: requests }, (_, r) => TOKENS + Math.floor(r / VARIANTS)),
      },
    },
  })
  const { artifact } = await fitFile(trace, { workers: clusters, layers: 'all', transform: 'count' })
  const path = join(folder, `artifact-${layers}-${clusters}.safetensors`)
  await writeArtifact(path, artifact)
  return { path, artifact }
}

// oxlint-disable-next-line typescript/no-explicit-any -- tests know what the gateway answers
export type Answer = { status: number; json: any }

export async function call(
  { url }: Pick<Cluster, 'url'>,
  method: string,
  path: string,
  body?: unknown,
  headers: Record<string, string> = {},
): Promise<Answer> {
  const isBytes = body instanceof Uint8Array
  const response = await fetch(`${url}${path}`, {
    method,
    headers: {
      ...(body !== undefined && {
        'content-type': isBytes ? 'application/octet-stream' : 'application/json',
      }),
      ...headers,
    },
    ...(body !== undefined && { body: isBytes ? (body as Uint8Array<ArrayBuffer>) : JSON.stringify(body) }),
  })
  return { status: response.status, json: await response.json() }
}

/** Status and code of an error response. */
export function errorOf({ status, json }: Answer): string {
  return `${status} ${json.error?.code}`
}

/** Waits for a change of the registry or the routing that makes `holds` true; nothing is polled. */
export function until({ gateway }: Cluster, holds: () => boolean): Promise<void> {
  return new Promise(resolve => {
    const check = () => {
      if (!holds()) return
      unsubscribe()
      resolve()
    }
    const unsubscribe = gateway.context.registry.subscribe(() => queueMicrotask(check))
    queueMicrotask(check)
  })
}

export interface ServerEvent {
  readonly event: string
  // oxlint-disable-next-line typescript/no-explicit-any -- tests know what the gateway says
  readonly data: any
}

/** Follows /eldr/events. */
export async function follow({ url }: Pick<Cluster, 'url'>, headers: Record<string, string> = {}) {
  const stop = new AbortController()
  const response = await fetch(`${url}/eldr/events`, { signal: stop.signal, headers })
  expect(response.headers.get('content-type')).toContain('text/event-stream')
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader()
  const seen: ServerEvent[] = []
  let text = ''
  /** False when the stream has ended. */
  async function more(): Promise<boolean> {
    const { done, value } = await reader.read()
    text += value ?? ''
    const parts = text.split('\n\n')
    text = parts.pop()!
    for (const part of parts) {
      const event = /^event: (.*)$/m.exec(part)?.[1]
      if (event !== undefined) seen.push({ event, data: JSON.parse(/^data: (.*)$/m.exec(part)![1]!) })
    }
    return !done
  }
  await more() // the greeting: from now on nothing is missed
  return {
    seen,
    /** The first matching event, past or future. */
    async find(wanted: (event: ServerEvent) => boolean): Promise<ServerEvent> {
      for (let at = 0; ; at++) {
        while (at >= seen.length)
          if (!(await more()) && at >= seen.length) throw new Error(`ended after ${JSON.stringify(seen)}`)
        if (wanted(seen[at]!)) return seen[at]!
      }
    },
    async ended(): Promise<void> {
      while (await more());
    },
    leave: () => stop.abort(),
  }
}
