/**
 * Changes policy, artifact and clusters at runtime. Each change is atomic; in-flight requests stay on their
 * workers.
 */
import { isUtf8 } from 'node:buffer'
import { EldrError } from '../../../errors.ts'
import { POLICIES } from '../../../policy/decode-policy.ts'
import { PREFILL_POLICIES } from '../../../policy/prefill-policy.ts'
import { Refusal, type RefusalCode } from '../../http/refusal.ts'
import { MAX_TAU } from '../../config/schema/schema-parts.ts'
import { readBody } from '../../http/read-body.ts'
import { asFile, SENT } from '../../routing/artifact-file.ts'
import { badRequest, type Fields, fieldsOf, nameOf, readFields, wholeOf } from './read-json.ts'
import type { AdminParts } from './admin-context.ts'
import type { AdminCall, AdminRoute } from './routes.ts'

export const MAX_CLUSTERS = 65_535
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
        const tau = tauOf(fields)
        if (Object.keys(fields).length === 0)
          throw badRequest('Nothing to change: set policy, tau or prefillPolicy.')
        const change = { policy, tau, prefillPolicy }
        const view = control.setPolicy(change)
        replicas?.changedPolicy(change)
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
        // `curl -d` sends JSON as a form.
        if (!isJson && !isBytes && body[0] === BRACE && body.length <= MAX_JSON_BYTES && isText(body))
          throw badRequest('The body is JSON: send it with content-type: application/json.', 'path')
        if (!isJson) return { status: 200, body: await loadUploaded(body) }
        const { path } = fieldsOf(body, ['path'])
        if (typeof path !== 'string' || path === '' || path.includes('\0'))
          throw badRequest('path must be the path of an artifact on the gateway’s machine.', 'path')
        const view = await control.load(path).catch(refuseAs('ELDR_ARTIFACT_BAD'))
        replicas?.loadedArtifact(view, path)
        return { status: 200, body: view }
      },
    },
    { method: 'POST', path: '/eldr/refit', run: call => refit(call) },
  ]

  async function refit({ exchange, proceed }: AdminCall) {
    const clusters = wholeOf(await readFields(exchange, proceed, ['workers']), 'workers', 1, MAX_CLUSTERS)
    const view = await control.refit(clusters).catch(refuseAs('ELDR_REFIT_REFUSED'))
    replicas?.refitted(view)
    return { status: 200, body: view }
  }

  async function loadUploaded(body: Buffer) {
    const view = await asFile(body, path =>
      control.load(path, SENT).catch(refuseAs('ELDR_ARTIFACT_BAD', SENT)),
    ).catch(refuseAs('ELDR_ARTIFACT_UNSAVED'))
    replicas?.loadedArtifact(view, '', { sent: body })
    return view
  }
}

/** Undefined if absent. */
export function tauOf({ tau }: Fields): number | undefined {
  if (tau === undefined || (typeof tau === 'number' && tau >= 0 && tau <= MAX_TAU)) return tau
  throw badRequest(`tau must be a number from 0 to ${MAX_TAU}.`, 'tau')
}

/**
 * Passes on the message of a file error. `file` replaces a temporary name that means nothing to the client.
 */
function refuseAs(code: RefusalCode, file?: string): (error: unknown) => never {
  return error => {
    if (!(error instanceof EldrError)) throw error
    const { message } = file === undefined ? error : new EldrError(error.code, { ...error.detail, file })
    throw new Refusal(code, { words: message, cause: error })
  }
}
