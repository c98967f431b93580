/** Small components shared by several views. */
import type { ComponentChildren } from 'preact'
import { workerGroup } from './colours.ts'
import { STATES } from './words.ts'

export function Section({
  title,
  aside,
  children,
}: {
  title: string
  aside?: ComponentChildren
  children: ComponentChildren
}) {
  const id = `s-${title.toLowerCase().replaceAll(/[^a-z]+/g, '-')}`
  return (
    <section aria-labelledby={id}>
      <div class="heading">
        <h2 id={id}>{title}</h2>
        {aside}
      </div>
      {children}
    </section>
  )
}

/** A worker's colour; always shown with its name. */
export function Swatch({ worker }: { worker: string }) {
  return <i class={`swatch ${workerGroup(worker)}`} aria-hidden="true" />
}

export function WorkerName({ id }: { id: string }) {
  return (
    <span class="worker">
      <Swatch worker={id} />
      {id}
    </span>
  )
}

export function State({ state }: { state: string }) {
  const words = state === 'silent' ? 'no response' : state === 'open' ? 'breaker open' : state
  return (
    <span class={`state ${state}`} title={STATES[state]}>
      {words}
    </span>
  )
}

export function Fact({
  name,
  value,
  note,
  fact,
}: {
  name: string
  value: ComponentChildren
  note?: string | undefined
  fact?: string
}) {
  return (
    <div class="fact">
      <dt>{name}</dt>
      <dd data-fact={fact}>{value}</dd>
      {note !== undefined && <dd class="note">{note}</dd>}
    </div>
  )
}

/** A choice between a few options, as a row of buttons. */
export function Choice<Name extends string>(props: {
  label: string
  value: Name
  options: readonly (readonly [Name, string])[]
  onChange(name: Name): void
}) {
  return (
    <div class="choice" role="group" aria-label={props.label}>
      {props.options.map(([name, words]) => (
        <button
          key={name}
          type="button"
          aria-pressed={props.value === name}
          onClick={() => props.onChange(name)}
        >
          {words}
        </button>
      ))}
    </div>
  )
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>
}
