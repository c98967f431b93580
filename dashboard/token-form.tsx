/** Asks for the admin token, where reading or changing needs it. */
import { useSignal } from '@preact/signals'
import { ask } from './api.ts'
import { setToken } from './follow.ts'
import { token, welcome } from './state.ts'
import type { Welcome } from '../src/gateway/observe/insight/wire.ts'

export function TokenForm({ what = 'see what the gateway does' }: { what?: string }) {
  const wrong = useSignal('')
  if (welcome.value?.tokenSet === false)
    return (
      <div class="card ask">
        <h2>Not from here</h2>
        <p>
          This gateway has no admin token, and then it shows itself only on its own machine. Open the page
          there, or start the gateway with <code>--admin-token-file FILE</code>.
        </p>
      </div>
    )
  async function submit(event: SubmitEvent): Promise<void> {
    event.preventDefault()
    const given = String(new FormData(event.currentTarget as HTMLFormElement).get('token') ?? '').trim()
    const before = token.value
    token.value = given
    const answer = await ask<Welcome>('dashboard').catch(() => undefined)
    if (answer?.access === 'change') {
      wrong.value = ''
      welcome.value = answer
      setToken(given)
    } else {
      token.value = before
      wrong.value =
        answer === undefined ? 'The gateway does not answer.' : 'This is not the gateway’s admin token.'
    }
  }
  return (
    <form class="card ask" onSubmit={submit} autocomplete="off">
      <h2>Admin token</h2>
      <p>
        The gateway asks for its admin token to {what}. It stays in this tab and is forgotten when the tab is
        closed.
      </p>
      <label for="token">Token</label>
      <div class="line">
        <input
          id="token"
          name="token"
          type="password"
          required
          autocomplete="off"
          aria-describedby="token-wrong"
        />
        <button type="submit" class="main">
          Use it
        </button>
      </div>
      <p id="token-wrong" class="warn" role="alert">
        {wrong.value}
      </p>
    </form>
  )
}
