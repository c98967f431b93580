/** Controls for policy, τ, workers and artifact; read-only without permission to change. */
import { useSignal } from '@preact/signals'
import { ApiError } from './api.ts'
import { ArtifactPart, Workers } from './control-cluster.tsx'
import { Policy } from './control-policy.tsx'
import { setToken } from './follow.ts'
import { mayChange, token, unlocked, welcome } from './state.ts'
import { TokenForm } from './token-form.tsx'

/** Result of the last change. */
interface Result {
  readonly isOk: boolean
  readonly text: string
}

export function Control() {
  const result = useSignal<Result | undefined>(undefined)
  const busy = useSignal(false)
  async function run(text: string, work: () => Promise<unknown>): Promise<void> {
    busy.value = true
    result.value = undefined
    try {
      await work()
      result.value = { isOk: true, text }
    } catch (error) {
      result.value = {
        isOk: false,
        text: error instanceof ApiError ? error.message : 'The gateway does not respond.',
      }
    }
    busy.value = false
  }
  const off = !mayChange.value || busy.value
  return (
    <>
      <Lock />
      <p class={`said ${result.value?.isOk === false ? 'warn' : ''}`} role="status" data-fact="said">
        {busy.value ? 'Applying…' : (result.value?.text ?? '')}
      </p>
      <Policy off={off} run={run} />
      <Workers off={off} run={run} />
      <ArtifactPart off={off} run={run} />
    </>
  )
}

function Lock() {
  const { access, tokenSet } = welcome.value!
  if (access === 'read') return <TokenForm what="change anything; without it this page is read-only" />
  if (tokenSet)
    return (
      <p class="notice">
        You have the admin token: changes take effect immediately for all new requests.{' '}
        {token.value !== '' && (
          <button type="button" onClick={() => setToken('')}>
            Delete the token
          </button>
        )}
      </p>
    )
  return (
    <p class="notice">
      {unlocked.value
        ? 'Changes take effect immediately for all new requests. '
        : 'Read-only. This gateway has no admin token, so every user of its machine may change settings. '}
      <button type="button" aria-pressed={unlocked.value} onClick={() => (unlocked.value = !unlocked.value)}>
        {unlocked.value ? 'Make read-only' : 'Allow changes from this page'}
      </button>
    </p>
  )
}
