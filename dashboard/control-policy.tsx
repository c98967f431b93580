/** Controls for the policies and τ. */
import { useSignal } from '@preact/signals'
import { change } from './api.ts'
import { Section } from './parts.tsx'
import { pulse, welcome } from './state.ts'

/** A part of the view that can change something. */
export interface Part {
  readonly off: boolean
  run(words: string, work: () => Promise<unknown>): Promise<void>
}

export function Policy({ off, run }: Part) {
  const { policy, tau, prefillPolicy } = pulse.value!.routing
  const { policies = [], prefillPolicies = [] } = welcome.value!
  const edited = useSignal<{ policy?: string; tau?: string; prefillPolicy?: string }>({})
  const values = () => ({ policy, tau: String(tau), prefillPolicy, ...edited.value })
  const now = values()
  function submit(event: SubmitEvent): void {
    event.preventDefault()
    const next = values()
    void run(
      `Decode policy ${next.policy}, τ ${next.tau}, prefill policy ${next.prefillPolicy}.`,
      async () => {
        await change('PUT', 'policy', { ...next, tau: Number(next.tau) })
        edited.value = {}
      },
    )
  }
  return (
    <Section title="Policy">
      <form class="card" onSubmit={submit}>
        <fieldset disabled={off}>
          <legend class="unseen">Policy</legend>
          <div class="fields">
            <label>
              Decode policy
              <select
                name="policy"
                value={now.policy}
                onChange={event => (edited.value = { ...edited.value, policy: event.currentTarget.value })}
              >
                {policies.map(name => (
                  <option key={name}>{name}</option>
                ))}
              </select>
            </label>
            <label>
              <span>
                τ <span class="quiet">weight of load, 0 to 2; for eldr and band</span>
              </span>
              <input
                name="tau"
                type="number"
                min={0}
                max={2}
                step="any"
                required
                value={now.tau}
                onInput={event => (edited.value = { ...edited.value, tau: event.currentTarget.value })}
              />
            </label>
            <label>
              Prefill policy
              <select
                name="prefillPolicy"
                value={now.prefillPolicy}
                onChange={event =>
                  (edited.value = { ...edited.value, prefillPolicy: event.currentTarget.value })
                }
              >
                {prefillPolicies.map(name => (
                  <option key={name}>{name}</option>
                ))}
              </select>
            </label>
            <button type="submit" class="main">
              Apply
            </button>
          </div>
        </fieldset>
      </form>
    </Section>
  )
}
