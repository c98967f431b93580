/**
 * A proxy in front of a gateway with one planted bug, so that a run shows that the checker finds it:
 * `npm run test:chaos -- --plant repeat`.
 */
import { once } from 'node:events'
import { createServer, request, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { request as httpsRequest } from 'node:https'
import type { AddressInfo } from 'node:net'

/** What each does to a stream that is long enough; `forget` confirms an admin change and drops it. */
export const PLANTS = ['repeat', 'drop', 'change', 'swallow', 'twice', 'hang', 'cut', 'forget'] as const
export type Plant = (typeof PLANTS)[number]

/** Position of the event that is hit: after the first tokens, before the end of every answer. */
const AT_EVENT = 5
/** Every stream would be too easy to find. */
const ONE_OF = 8

export async function startPlantedProxy(
  plant: Plant,
  target: string,
  oneOf = ONE_OF,
): Promise<{ server: Server; url: string }> {
  let streams = 0
  const server = createServer((incoming, response) => {
    const isChange = incoming.method !== 'GET' && incoming.url?.startsWith('/eldr/') === true
    if (plant === 'forget' && isChange) {
      incoming.resume().on('end', () => response.writeHead(200).end('{}'))
      return
    }
    const send = target.startsWith('https:') ? httpsRequest : request
    const { host: _, ...headers } = incoming.headers
    const call = send(`${target}${incoming.url}`, { method: incoming.method, headers, agent: false })
    call.on('error', () => response.destroy())
    response.on('close', () => call.destroy())
    call.on('response', answer => {
      const isStream = answer.headers['content-type']?.startsWith('text/event-stream') === true
      const { 'content-length': _length, ...rest } = answer.headers
      response.writeHead(answer.statusCode!, isStream ? rest : answer.headers)
      answer.on('error', () => response.destroy())
      answer.on('close', () => answer.complete || response.destroy())
      if (isStream && streams++ % oneOf === 0) planted(plant, answer, response)
      else answer.pipe(response)
    })
    incoming.pipe(call)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  return { server, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }
}

function planted(plant: Plant, answer: IncomingMessage, response: ServerResponse): void {
  let rest = ''
  let number = 0
  const pass = (event: string) => void response.write(`${event}\n\n`)
  answer.setEncoding('utf8')
  answer.on('data', (text: string) => {
    const events = (rest + text).split('\n\n')
    rest = events.pop()!
    for (const event of events) hit(event, number++)
  })
  answer.on('end', () => plant !== 'hang' && response.end())

  function hit(event: string, at: number): void {
    const isDone = event === 'data: [DONE]'
    if (plant === 'swallow' && isDone) return
    if (plant === 'hang' && at >= AT_EVENT) return
    if (plant === 'drop' && at === AT_EVENT) return
    if (plant === 'cut' && at === AT_EVENT) return void response.destroy()
    pass(plant === 'change' && at === AT_EVENT ? changed(event) : event)
    if ((plant === 'repeat' && at === AT_EVENT) || (plant === 'twice' && isDone)) pass(event)
  }
}

/** Another text and another token, in an event that still has its form. */
function changed(event: string): string {
  return event
    .replace(/("(?:text|content)":")/, '$1~')
    .replace(/"token_ids":\[(\d+)/, (_, id: string) => `"token_ids":[${Number(id) + 1}`)
}
