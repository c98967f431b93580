// An owner in its own process, to measure the round trip of a request to it.
//
//   node bench/lib/owner-process.mjs DIST SOCKET POLICY
import { createServer } from 'node:net'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { ownerParts } from './owner-parts.mjs'

const [dist, path, policy] = process.argv.slice(2)
const load = file => import(pathToFileURL(join(dist, file)).href)
const { createLog } = await load('gateway/observe/log/log.js')
const { OwnerServer } = await load('gateway/scale/processes/owner-server.js')
const nothing = () => {}
const desk = new OwnerServer(
  {
    ...(await ownerParts(dist, policy)),
    health: { passiveFailure: nothing },
    restarts: { sawEngineId: nothing },
    pace: { firstByte: nothing, stream: nothing, onWorker: nothing },
    log: createLog({ logLevel: 'silent', logFormat: 'json' }),
    logLevel: () => 'silent',
  },
  { relays: [], roles: [], mostMs: 1 },
)
createServer(socket => desk.connected(socket)).listen(path, () => process.stdout.write('ready\n'))
process.stdin.on('close', () => process.exit()).resume()
