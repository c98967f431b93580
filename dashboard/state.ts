/** What the page knows, as signals: views read them, `follow.ts` writes them. */
import { computed, signal } from '@preact/signals'
import type {
  ExpertsView,
  ClusterEvent,
  LiveDecision,
  PacePoint,
  PlaneView,
  Pulse,
  Welcome,
} from '../src/gateway/observe/insight/wire.ts'

export const VIEWS = ['overview', 'experts', 'decisions', 'signatures', 'control'] as const
export type ViewName = (typeof VIEWS)[number]

export type Connection = 'connecting' | 'live' | 'lost' | 'crowded' | 'refused' | 'asleep'

export const welcome = signal<Welcome | undefined>(undefined)
export const connection = signal<Connection>('connecting')
export const pulse = signal<Pulse | undefined>(undefined)
export const experts = signal<ExpertsView | undefined>(undefined)
/** Null: the gateway has no artifact. */
export const plane = signal<PlaneView | null | undefined>(undefined)
export const pace = signal<readonly PacePoint[]>([])
export const happenings = signal<readonly ClusterEvent[]>([])
/** The newest first. */
export const decisions = signal<readonly LiveDecision[]>([])
export const paused = signal(false)
/** Decisions that are not shown because the list is paused. */
export const heldBack = signal(0)
/** Of the last seconds: decisions made, and shown. */
export const rates = signal<{ readonly made: number; readonly shown: number }>({ made: 0, shown: 0 })
export const sliceMs = signal(5_000)
/** Rises when colours change, so that canvases are drawn anew. */
export const scheme = signal(0)
export const reducedMotion = signal(false)

/** In this tab only: gone when it is closed. */
export const token = signal(sessionStorage.getItem('eldr-admin-token') ?? '')
/** Without a token on the gateway a person says first that changes are meant. */
export const unlocked = signal(false)

export const mayRead = computed(() => welcome.value !== undefined && welcome.value.access !== 'none')
export const mayChange = computed(
  () => welcome.value?.access === 'change' && (welcome.value.tokenSet || unlocked.value),
)

export const address = signal(location.hash)
export const view = computed<ViewName>(
  () => VIEWS.find(name => address.value.slice(1).split('/')[0] === name) ?? 'overview',
)
/** Request whose story is open. */
export const openRequest = computed(() => {
  const [, id] = address.value.slice(1).split('/')
  if (view.value !== 'decisions' || !id) return undefined
  try {
    return decodeURIComponent(id)
  } catch {
    return undefined // somebody wrote it by hand
  }
})

export const decoders = computed(() => pulse.value?.workers.filter(({ role }) => role === 'decode') ?? [])
export const prefillers = computed(() => pulse.value?.workers.filter(({ role }) => role === 'prefill') ?? [])
/** In one string, so that what hangs on them changes when they do and not with every pulse. */
const idLines = computed(() => decoders.value.map(({ id }) => id).join('\n'))
export const decoderIds = computed<readonly string[]>(() =>
  idLines.value === '' ? [] : idLines.value.split('\n'),
)
