/**
 * Updates the signals: reads the gateway's pulses, reconnects when they end, and fetches what pulses do not
 * contain.
 */
import { batch } from '@preact/signals'
import type {
  AdaptView,
  ExpertsView,
  Hello,
  LiveDecision,
  LiveExperiment,
  PacePoint,
  PlaneView,
  Pulse,
  ShadowView,
  Welcome,
} from '../src/gateway/observe/insight/wire.ts'
import { ask, authorization } from './api.ts'
import { EventReader } from './server-events.ts'
import {
  adapt,
  connection,
  decisions,
  experiment,
  experts,
  clusterEvents,
  heldBack,
  pace,
  paused,
  plane,
  pulse,
  rates,
  shadow,
  sliceMs,
  token,
  view,
  welcome,
} from './state.ts'
import { keepLooks } from './looks.ts'
import { addDots, clearDots } from './dots.ts'

const KEPT_DECISIONS = 150
const KEPT_EVENTS = 100
/** Pulses arrive twice per second; after this much silence the connection counts as lost. */
const SILENT_MS = 4_000
const RETRY_MS = [500, 1_000, 2_000, 3_000]
const EXPERTS_MS = 700
const ADAPT_MS = 1_000
/** A hidden page stops polling after this. */
const ASLEEP_AFTER_MS = 60_000
const RATE_WINDOW_MS = 5_000

/** The gateway has reached its limit of viewers. */
class Crowded extends Error {}

let current: AbortController | undefined
let wake = () => {}

/** Runs forever. */
export async function follow(): Promise<never> {
  let failures = 0
  document.addEventListener('visibilitychange', () =>
    document.hidden ? setTimeout(sleepIfHidden, ASLEEP_AFTER_MS) : wake(),
  )
  void followExperts()
  void followAdapt()
  for (;;) {
    if (isAsleep()) {
      if (document.hidden) await woken()
      connection.value = 'connecting'
    }
    let crowded = false
    try {
      welcome.value = await ask<Welcome>('dashboard')
      if (welcome.value.access === 'none') {
        connection.value = 'refused'
        await woken()
        connection.value = 'connecting'
        continue
      }
      await readPulses(() => (failures = 0))
    } catch (error) {
      // The gateway is unreachable or has too many viewers: retry.
      crowded = error instanceof Crowded
    }
    if (isAsleep()) continue
    if (crowded) connection.value = 'crowded'
    else connection.value = failures === 0 && connection.value === 'connecting' ? 'connecting' : 'lost'
    await Promise.race([pause(RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)]!), woken()])
  }
}

/** Reconnects after a change of the token or when the page becomes visible again. */
export function reconnect(): void {
  current?.abort()
  wake()
}

export function setToken(value: string): void {
  token.value = value
  if (value === '') sessionStorage.removeItem('eldr-admin-token')
  else sessionStorage.setItem('eldr-admin-token', value)
  reconnect()
}

async function readPulses(live: () => void): Promise<void> {
  const stop = (current = new AbortController())
  let timer = setTimeout(() => stop.abort(), SILENT_MS)
  try {
    const response = await fetch('eldr/pulse', {
      signal: stop.signal,
      headers: authorization(),
      cache: 'no-store',
    })
    if (response.status === 429) throw new Crowded()
    if (!response.ok || response.body === null)
      throw new Error(`the gateway responded with status ${response.status}`)
    const events = new EventReader()
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      clearTimeout(timer)
      timer = setTimeout(() => stop.abort(), SILENT_MS)
      for (const { event, data } of events.push(piece.value)) {
        if (event === 'hello') hello(JSON.parse(data) as Hello)
        else if (event === 'pulse') beat(JSON.parse(data) as Pulse)
      }
      live()
    }
  } finally {
    clearTimeout(timer)
    stop.abort()
  }
}

function hello(first: Hello): void {
  batch(() => {
    connection.value = 'live'
    sliceMs.value = first.sliceMs
    pace.value = first.pace
    clusterEvents.value = first.happenings
    // After a reconnect the page keeps the decisions it has.
    if (decisions.value.length === 0) decisions.value = first.decisions.toReversed()
    pulse.value = first.pulse
  })
  // A restarted gateway places live requests only after a request for the plane.
  void takePlane()
}

const seen: { readonly atMs: number; readonly ms: number; readonly made: number; readonly shown: number }[] =
  []

function beat(next: Pulse): void {
  batch(() => {
    const fresh = new Map(next.pace.map(point => [keyOf(point), point]))
    if (fresh.size > 0)
      pace.value = [...pace.value.filter(point => !fresh.has(keyOf(point))), ...next.pace].filter(
        ({ fromMs }) => fromMs > next.atMs - 900_000,
      )
    if (next.happenings.length > 0) {
      const last = clusterEvents.value.at(-1)?.number ?? 0
      clusterEvents.value = [
        ...clusterEvents.value,
        ...next.happenings.filter(({ number }) => number > last),
      ].slice(-KEPT_EVENTS)
    }
    if (next.sample.length > 0) show(next.sample)
    seen.push({ atMs: next.atMs, ms: next.sinceMs, made: next.seen, shown: next.sample.length })
    while (seen[0]!.atMs <= next.atMs - RATE_WINDOW_MS) seen.shift()
    const seconds = seen.reduce((sum, { ms }) => sum + ms, 0) / 1000
    const perSecond = (key: 'made' | 'shown') =>
      seconds > 0 ? seen.reduce((sum, one) => sum + one[key], 0) / seconds : 0
    rates.value = { made: perSecond('made'), shown: perSecond('shown') }
    takePulse(next)
  })
}

function show(sample: readonly LiveDecision[]): void {
  addDots(sample)
  if (paused.value) heldBack.value += sample.length
  else decisions.value = [...sample.toReversed(), ...decisions.value].slice(0, KEPT_DECISIONS)
}

function takePulse(next: Pulse): void {
  const before = pulse.value?.routing.artifact
  pulse.value = next
  const now = next.routing.artifact
  if (before?.sha256 !== now?.sha256 || before?.clusters !== now?.clusters) void takePlane()
}

async function takePlane(): Promise<void> {
  const { plane: next } = await ask<{ plane: PlaneView | null }>('plane').catch(() => ({
    plane: plane.value,
  }))
  if (next?.sha256 !== plane.value?.sha256) clearDots()
  plane.value = next
}

async function followExperts(): Promise<never> {
  for (;;) {
    if (connection.value === 'live' && !document.hidden) {
      const withExpected = view.value === 'experts'
      const next = await ask<ExpertsView>(`experts${withExpected ? '?expected=1' : ''}`).catch(
        () => undefined,
      )
      if (next !== undefined) {
        keepLooks(next)
        experts.value = next
      }
    }
    await pause(EXPERTS_MS)
  }
}

async function followAdapt(): Promise<never> {
  for (;;) {
    const isShown = view.value === 'adapt' && connection.value === 'live' && !document.hidden
    if (isShown) {
      const [adapting, shadows, running] = await Promise.all([
        ask<AdaptView>('adapt').catch(() => adapt.value),
        ask<ShadowView>('shadow').catch(() => shadow.value),
        ask<LiveExperiment>('experiment').catch(() => experiment.value),
      ])
      batch(() => {
        adapt.value = adapting
        shadow.value = shadows
        experiment.value = running
      })
    }
    await pause(isShown ? ADAPT_MS : EXPERTS_MS / 2)
  }
}

const isAsleep = () => connection.value === 'asleep'

function sleepIfHidden(): void {
  if (!document.hidden) return
  connection.value = 'asleep'
  current?.abort()
}

const keyOf = ({ fromMs, policy }: PacePoint) => `${fromMs} ${policy}`

function pause(ms: number): Promise<void> {
  return new Promise(resolve => setTimeout(resolve, ms))
}

function woken(): Promise<void> {
  return new Promise(resolve => (wake = resolve))
}
