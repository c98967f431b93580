/** Frame of the page: current policy, connection status and the views. */
import { useSignalEffect } from '@preact/signals'
import { useRef } from 'preact/hooks'
import { Adapt } from './view-adapt.tsx'
import { Control } from './view-control.tsx'
import { Decisions } from './view-decisions.tsx'
import { Experts } from './view-experts.tsx'
import { Overview } from './view-overview.tsx'
import { Signatures } from './view-signatures.tsx'
import { StoryDialog } from './story-dialog.tsx'
import { TokenForm } from './token-form.tsx'
import {
  type Connection,
  connection,
  mayRead,
  openRequest,
  pulse,
  rates,
  view,
  VIEWS,
  type ViewName,
  welcome,
} from './state.ts'
import { number, percent } from './words.ts'

const NAMES: Readonly<Record<ViewName, string>> = {
  overview: 'Overview',
  experts: 'Experts',
  decisions: 'Decisions',
  signatures: 'Signatures',
  adapt: 'Adapt',
  control: 'Control',
}

const CONNECTION_TEXTS: Readonly<Record<Connection, string>> = {
  connecting: 'connecting',
  live: 'live',
  lost: 'reconnecting',
  crowded: 'too many viewers',
  refused: 'token required',
  asleep: 'paused',
}

/** Shown before the first data arrive. */
const WAITING: Partial<Record<Connection, string>> = {
  lost: 'The gateway does not respond. Retrying automatically.',
  crowded:
    'Too many viewers are connected to this gateway. Retrying automatically; with the admin token a connection may still be possible.',
}

export function App() {
  const main = useRef<HTMLElement>(null)
  const before = useRef(view.value)
  useSignalEffect(() => {
    const now = view.value
    document.title = `${NAMES[now]} · ELDR`
    // Screen reader and keyboard users start at the beginning of the view.
    if (before.current !== now && openRequest.value === undefined)
      main.current?.focus({ preventScroll: true })
    before.current = now
  })
  return (
    <>
      <a class="skip" href="#main" onClick={event => (event.preventDefault(), main.current?.focus())}>
        Skip to the view
      </a>
      <header class="top">
        <div class="bar">
          <p class="brand">
            <span class="mark" aria-hidden="true">
              <i /> <i /> <i />
            </span>
            ELDR
          </p>
          <CurrentPolicy />
          <Status />
        </div>
        <nav aria-label="Views">
          {VIEWS.map(name => (
            <a key={name} href={`#${name}`} aria-current={view.value === name ? 'page' : undefined}>
              {NAMES[name]}
            </a>
          ))}
        </nav>
      </header>
      <main ref={main} id="main" tabIndex={-1} class={connection.value === 'lost' ? 'stale' : ''}>
        <h1 class="unseen">{NAMES[view.value]}</h1>
        <Body />
      </main>
      {openRequest.value !== undefined && <StoryDialog key={openRequest.value} id={openRequest.value} />}
      <footer>
        <Footer />
      </footer>
    </>
  )
}

function Body() {
  if (connection.value === 'refused' || (welcome.value !== undefined && !mayRead.value)) return <TokenForm />
  if (pulse.value === undefined)
    return (
      <p class="empty" role="status">
        {WAITING[connection.value] ?? 'Connecting to the gateway…'}
      </p>
    )
  const views = {
    overview: Overview,
    experts: Experts,
    decisions: Decisions,
    signatures: Signatures,
    adapt: Adapt,
    control: Control,
  }
  const View = views[view.value]
  return <View />
}

function CurrentPolicy() {
  const routing = pulse.value?.routing
  if (routing === undefined) return <p class="inforce" />
  return (
    <p class="inforce">
      <span>
        policy <strong data-fact="policy">{routing.policy}</strong>
      </span>
      {POLICIES_WITH_TAU.includes(routing.policy) && (
        <span>
          τ <strong data-fact="tau">{number(routing.tau)}</strong>
        </span>
      )}
      <span class="wide">
        {routing.artifact === undefined
          ? 'no artifact'
          : `${routing.artifact.model}, ${routing.artifact.clusters} clusters`}
      </span>
    </p>
  )
}

function Status() {
  return (
    <p class={`status ${connection.value}`} role="status" data-fact="connection">
      <span class="light" aria-hidden="true" />
      {CONNECTION_TEXTS[connection.value]}
    </p>
  )
}

/** Every view says that the decisions shown are a sample. */
function Footer() {
  const { made, shown } = rates.value
  const share = made > 0 ? Math.min(1, shown / made) : 1
  return (
    <>
      <span>
        <b data-fact="rate">{number(made)}</b> decisions per second, <b data-fact="share">{percent(share)}</b>{' '}
        shown
      </span>
      <span>
        {number(pulse.value?.running ?? 0)} requests running, {number(pulse.value?.queued ?? 0)} queued
      </span>
      <span>eldr {welcome.value?.version ?? ''}</span>
    </>
  )
}
