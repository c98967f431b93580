/** Asks for the admin token if reading or changing needs it. */
import { useSignal } from '@preact/signals'
import { ask } from './api.ts'
import { setToken } from './follow.ts'
import { token, welcome } from './state.ts'
import type { Welcome } from '../src/gateway/observe/insight/wire.ts'

export function TokenForm({ what = 'show its state' }: { what?: string }) {
  const wrong = useSignal('')
  if (welcome.value?.tokenSet === false)
    return (
      <div class="card ask">
        <h2>Not available from this machine</h2>
        <p>
          Without an admin token the gateway serves this page only on its own machine. Open the page there, or
          start the gateway with <code>--admin-token-file FILE</code>.
        </p>
      </div>
    )
  async function submit(event: SubmitEvent): Promise<void> {
    event.preventDefault()
    const entered = String(new FormData(event.currentTarget as HTMLFormElement).get('token') ?? '').trim()
    const before = token.value
    token.value = entered
    const response = await ask<Welcome>('dashboard').catch(() => undefined)
    if (response?.access === 'change') {
      wrong.value = ''
      welcome.value = response
      setToken(entered)
    } else {
      token.value = before
      wrong.value =
        response === undefined ? 'The gateway does not respond.' : 'This is not the gateway’s admin token.'
    }
  }
  return (
    <form class="card ask" onSubmit={submit} autocomplete="off">
      <h2>Admin token</h2>
      <p>
        The gateway needs its admin token to {what}. The token stays in this tab and is deleted when the tab
        is closed.
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
          Use token
        </button>
      </div>
      <p id="token-wrong" class="warn" role="alert">
        {wrong.value}
      </p>
    </form>
  )
}
