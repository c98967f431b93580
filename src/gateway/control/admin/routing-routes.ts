/** Policy, artifact and clusters while the gateway runs. Each change is made whole or not at all; requests in flight stay where they are. */
import { isUtf8 } from 'node:buffer'
import { EldrError } from '../../../errors.ts'
import { POLICIES } from '../../../policy/decode-policy.ts'
import { PREFILL_POLICIES } from '../../../policy/prefill-policy.ts'
import { Refusal, type RefusalCode } from '../../http/refusal.ts'
import { MAX_TAU } from '../../config/schema/schema-parts.ts'
import { readBody } from '../../http/read-body.ts'
import { asFile, SENT } from '../../routing/artifact-file.ts'
import { bad, fieldsOf, nameOf, readFields, wholeOf } from './read-json.ts'
import type { AdminParts } from './admin-context.ts'
import type { AdminCall, AdminRoute } from './routes.ts'

export const MAX_CLUSTERS = 65_535
/** A path and what is around it. */
const MAX_JSON_BYTES = 64 << 10
const BRACE = 0x7b
const isText = (body: Buffer) => !body.includes(0) && isUtf8(body)

export function routingRoutes({ ctx, control, replicas }: AdminParts): AdminRoute[] {
  const { maxBodyBytes } = ctx.settings.server
  return [
    {
      method: 'PUT',
      path: '/eldr/policy',
      async run({ exchange, proceed }) {
        const fields = await readFields(exchange, proceed, ['policy', 'tau', 'prefillPolicy'])
        const policy = nameOf(fields, 'policy', POLICIES)
        const prefillPolicy = nameOf(fields, 'prefillPolicy', PREFILL_POLICIES)
        const { tau } = fields
        if (tau !== undefined && !(typeof tau === 'number' && tau >= 0 && tau <= MAX_TAU))
          throw bad(`tau must be a number from 0 to ${MAX_TAU}.`, 'tau')
        if (Object.keys(fields).length === 0)
          throw bad('Nothing to change: give policy, tau or prefillPolicy.')
        const wanted = {
          ...(policy && { policy }),
          ...(prefillPolicy && { prefillPolicy }),
          ...(tau !== undefined && { tau }),
        }
        const view = control.setPolicy(wanted)
        replicas?.changedPolicy(wanted)
        return { status: 200, body: view }
      },
    },
    {
      method: 'POST',
      path: '/eldr/artifact',
      async run({ exchange, proceed }) {
        const type = exchange.request.headers['content-type'] ?? ''
        const isJson = /^application\/json\b/i.test(type)
        const isBytes = /^application\/octet-stream\b/i.test(type)
        const body = await readBody(
          exchange.request,
          isJson ? MAX_JSON_BYTES : maxBodyBytes,
          proceed,
          exchange,
        )
        // As `curl -d` sends it.
        if (!isJson && !isBytes && body[0] === BRACE && body.length <= MAX_JSON_BYTES && isText(body))
          throw bad('This is JSON: send it with content-type: application/json.', 'path')
        if (!isJson) return { status: 200, body: await sent(body) }
        const { path } = fieldsOf(body, ['path'])
        if (typeof path !== 'string' || path === '' || path.includes('\0'))
          throw bad('path must be that of an artifact on the gateway’s machine.', 'path')
        const view = await control.load(path).catch(told('ELDR_ARTIFACT_BAD'))
        replicas?.loadedArtifact(view, path)
        return { status: 200, body: view }
      },
    },
    { method: 'POST', path: '/eldr/refit', run: call => refit(call) },
  ]

  async function refit({ exchange, proceed }: AdminCall) {
    const clusters = wholeOf(await readFields(exchange, proceed, ['workers']), 'workers', 1, MAX_CLUSTERS)
    const view = await control.refit(clusters).catch(told('ELDR_REFIT_REFUSED'))
    replicas?.refitted(view)
    return { status: 200, body: view }
  }

  async function sent(body: Buffer) {
    const view = await asFile(body, path => control.load(path, SENT).catch(told('ELDR_ARTIFACT_BAD', SENT)))
    replicas?.loadedArtifact(view, '', body)
    return view
  }
}

/** What is wrong with a file is said as the command line would say it; `file` in place of a name that means nothing to the client. */
function told(code: RefusalCode, file?: string): (error: unknown) => never {
  return error => {
    if (!(error instanceof EldrError)) throw error
    const { message } = file === undefined ? error : new EldrError(error.code, { ...error.detail, file })
    throw new Refusal(code, { words: message, cause: error })
  }
}
