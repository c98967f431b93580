/** Shared by the tests of the load client: a plan against a server, with overrides. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type EndpointSpec, openEndpoint } from '../../src/load/endpoint.ts'
import { synthetic } from '../../src/load/synthetic-sources.ts'
import { type LoadPlan, type LoadRun, runLoad } from '../../src/load/run-load.ts'

export const SOURCE = synthetic({
  form: 'text',
  promptTokens: 8,
  outputTokens: 6,
  prefixGroups: 0,
  prefixTokens: 0,
  seed: 1,
})

/** Open loop with one request every `ms` milliseconds. */
export function every(ms: number): LoadPlan['loop'] {
  let next = 0
  return { kind: 'open', nextMs: () => ms * next++ }
}

/** Default: ten requests, all counted, four at a time. */
export async function load(
  url: string,
  more: Partial<LoadPlan> = {},
  spec: Partial<EndpointSpec> = {},
): Promise<LoadRun> {
  const endpoint = openEndpoint({ url, api: 'completions', ...spec })
  try {
    return await runLoad({
      endpoint,
      source: SOURCE,
      body: { api: endpoint.spec.api, model: 'fake', ignoreEos: true },
      loop: { kind: 'closed', concurrency: 4 },
      requests: 10,
      durationMs: Infinity,
      counts: () => true,
      timeoutMs: 20_000,
      idPrefix: 'test',
      ...more,
    })
  } finally {
    await endpoint.close()
  }
}

export const TWO_TOKENS =
  'data: {"choices":[{"text":"a"}]}\n\ndata: {"choices":[{"text":"b","finish_reason":"length"}]}\n\ndata: [DONE]\n\n'

/** Starts a server for one test. */
export async function serve(
  answer: (request: IncomingMessage, response: ServerResponse) => void,
): Promise<{ url: string; stop(): Promise<void> }> {
  const server: Server = createServer((request, response) => {
    request.resume().on('end', () => answer(request, response))
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    stop() {
      server.closeAllConnections()
      return new Promise(resolve => server.close(() => resolve()))
    },
  }
}

export function stream(response: ServerResponse, text = TWO_TOKENS): void {
  response.writeHead(200, { 'content-type': 'text/event-stream' }).end(text)
}
