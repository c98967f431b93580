/**
 * Runs on a machine and takes commands as lines of JSON: sends requests, a steady load, and broken clients. A
 * network namespace belongs to a process, so requests from a machine need a process there. Exits at the end
 * of its input.
 */
import { createInterface } from 'node:readline'
import { connect as tlsConnect } from 'node:tls'
import { fingerprintOf } from '../cluster/certificates.ts'
import { type BrokenKind, sendBroken } from './broken-clients.ts'
import { Load, type LoadOptions } from './load.ts'
import { type Plant, startPlantedProxy } from './planted-proxy.ts'
import { ask, type Ask } from './ask.ts'

let load: Load | undefined

const commands: Record<string, (given: never) => Promise<object>> = {
  ask: (given: Ask) => ask(given),
  async load(options: LoadOptions) {
    load = new Load(options)
    return {}
  },
  async resume({ urls }: { urls: Record<string, string> }) {
    load!.resume(urls)
    return {}
  },
  async pause() {
    await load!.pause()
    return {}
  },
  /** Requests that have ended since the last call, and those that run. */
  take: async () => load!.take(),
  leave: async ({ share, seed }: { share: number; seed: number }) => ({ left: load!.leave(share, seed) }),
  probe: async ({ each }: { each: number }) => ({ seen: await load!.probe(each) }),
  broken: async ({ kind, url }: { kind: BrokenKind; url: string }) => sendBroken(kind, url),
  async plant({ plant, url }: { plant: Plant; url: string }) {
    return { url: (await startPlantedProxy(plant, url)).url }
  },
  certificate: ({ host, port }: { host: string; port: number }) =>
    new Promise<object>((resolve, reject) => {
      const socket = tlsConnect({ host, port }, () => {
        resolve({ fingerprint: fingerprintOf(socket.getPeerCertificate().raw) })
        socket.destroy()
      })
      socket.once('error', reject)
      socket.setTimeout(3_000, () => socket.destroy(new Error('timed out')))
    }),
}

function write(message: object): void {
  process.stdout.write(`${JSON.stringify(message)}\n`)
}

createInterface({ input: process.stdin })
  .on('line', line => {
    const { id, work, ...given } = JSON.parse(line) as { id: number; work: string }
    commands[work]!(given as never).then(
      result => write({ id, ...result }),
      (error: Error) => write({ id, error: error.message || error.name }),
    )
  })
  .once('close', () => process.exit(0))
write({ id: 0, ready: true })
