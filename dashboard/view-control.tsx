/** Changes, for those who may make them: policy, band, workers, artifact. Everybody else sees how things stand. */
import { useSignal } from '@preact/signals'
import { ApiError } from './api.ts'
import { ArtifactPart, Workers } from './control-cluster.tsx'
import { Policy } from './control-policy.tsx'
import { setToken } from './follow.ts'
import { mayChange, token, unlocked, welcome } from './state.ts'
import { TokenForm } from './token-form.tsx'

/** What became of the last change. */
interface Said {
  readonly good: boolean
  readonly words: string
}

export function Control() {
  const said = useSignal<Said | undefined>(undefined)
  const busy = useSignal(false)
  async function run(words: string, work: () => Promise<unknown>): Promise<void> {
    busy.value = true
    said.value = undefined
    try {
      await work()
      said.value = { good: true, words }
    } catch (error) {
      said.value = {
        good: false,
        words: error instanceof ApiError ? error.message : 'The gateway does not answer.',
      }
    }
    busy.value = false
  }
  const off = !mayChange.value || busy.value
  return (
    <>
      <Lock />
      <p class={`said ${said.value?.good === false ? 'warn' : ''}`} role="status" data-fact="said">
        {busy.value ? 'Changing …' : (said.value?.words ?? '')}
      </p>
      <Policy off={off} run={run} />
      <Workers off={off} run={run} />
      <ArtifactPart off={off} run={run} />
    </>
  )
}

function Lock() {
  const { access, tokenSet } = welcome.value!
  if (access === 'read') return <TokenForm what="change something; without it this page is read-only" />
  if (tokenSet)
    return (
      <p class="notice">
        You hold the admin token: changes take effect at once, for all requests to come.{' '}
        {token.value !== '' && (
          <button type="button" onClick={() => setToken('')}>
            Forget the token
          </button>
        )}
      </p>
    )
  return (
    <p class="notice">
      {unlocked.value
        ? 'Changes take effect at once, for all requests to come. '
        : 'Read-only. This gateway has no admin token, and so whoever is on its machine may change things. '}
      <button type="button" aria-pressed={unlocked.value} onClick={() => (unlocked.value = !unlocked.value)}>
        {unlocked.value ? 'Lock again' : 'Allow changes from this page'}
      </button>
    </p>
  )
}
