/** State of the page as signals: views read them, `follow.ts` writes them. */
import { computed, signal } from '@preact/signals'
import type {
  AdaptView,
  ExpertsView,
  ClusterEvent,
  LiveDecision,
  LiveExperiment,
  PacePoint,
  PlaneView,
  Pulse,
  ShadowView,
  Welcome,
} from '../src/gateway/observe/insight/wire.ts'

export const VIEWS = ['overview', 'experts', 'decisions', 'signatures', 'adapt', 'control'] as const
export type ViewName = (typeof VIEWS)[number]

export type Connection = 'connecting' | 'live' | 'lost' | 'crowded' | 'refused' | 'asleep'

export const welcome = signal<Welcome | undefined>(undefined)
export const connection = signal<Connection>('connecting')
export const pulse = signal<Pulse | undefined>(undefined)
export const adapt = signal<AdaptView | undefined>(undefined)
export const shadow = signal<ShadowView | undefined>(undefined)
export const experiment = signal<LiveExperiment | undefined>(undefined)
export const experts = signal<ExpertsView | undefined>(undefined)
/** Null: the gateway has no artifact. */
export const plane = signal<PlaneView | null | undefined>(undefined)
export const pace = signal<readonly PacePoint[]>([])
export const clusterEvents = signal<readonly ClusterEvent[]>([])
/** Newest first. */
export const decisions = signal<readonly LiveDecision[]>([])
export const paused = signal(false)
/** Number of decisions not shown because the list is paused. */
export const heldBack = signal(0)
/** Decisions made and shown per second, over the last seconds. */
export const rates = signal<{ readonly made: number; readonly shown: number }>({ made: 0, shown: 0 })
export const sliceMs = signal(5_000)
/** Incremented when colours change, so that canvases redraw. */
export const scheme = signal(0)
export const reducedMotion = signal(false)

/** Kept for this tab only. */
export const token = signal(sessionStorage.getItem('eldr-admin-token') ?? '')
/** Without a token on the gateway the user must unlock changes first. */
export const unlocked = signal(false)

export const mayRead = computed(() => welcome.value !== undefined && welcome.value.access !== 'none')
export const mayChange = computed(
  () => welcome.value?.access === 'change' && (welcome.value.tokenSet || unlocked.value),
)

export const address = signal(location.hash)
export const view = computed<ViewName>(
  () => VIEWS.find(name => address.value.slice(1).split('/')[0] === name) ?? 'overview',
)
/** Request whose details are open. */
export const openRequest = computed(() => {
  const [, id] = address.value.slice(1).split('/')
  if (view.value !== 'decisions' || !id) return undefined
  try {
    return decodeURIComponent(id)
  } catch {
    return undefined // malformed URL
  }
})

export const decoders = computed(() => pulse.value?.workers.filter(({ role }) => role === 'decode') ?? [])
export const prefillers = computed(() => pulse.value?.workers.filter(({ role }) => role === 'prefill') ?? [])
/** One string, so that dependents update when the ids change and not with every pulse. */
const idLines = computed(() => decoders.value.map(({ id }) => id).join('\n'))
export const decoderIds = computed<readonly string[]>(() =>
  idLines.value === '' ? [] : idLines.value.split('\n'),
)
