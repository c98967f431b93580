/** PlacementClient by the owner: what a relay asks, what it is answered, and the tickets that come of it. */
import type { Dispatch } from '../../../cluster/registry.ts'
import type { Role, WorkerSpec } from '../../../cluster/worker.ts'
import type { PlacementClient } from '../../routing/placement-client.ts'
import type { DecodePlacement } from '../../routing/router.ts'
import type { Frame } from './frames.ts'
import {
  ASK,
  type RawHandoff,
  rawHandoff,
  readMaybe,
  roleByte,
  ROOM,
  TELL,
  writeHandoff,
} from './messages.ts'
import type { LiveTicket, RelayLink } from './relay-link.ts'

/** Whoever was let in last was told whether there are workers: that is not asked again. */
export interface KnownRoom {
  readonly room: number
}

/** Counts are kept for as long as the request runs; of a large answer they are kept alone. */
const MOST_TIMES = 4

export function remotePlacementClient(link: RelayLink, known: KnownRoom): PlacementClient {
  const yes = (kind: number, role: Role, exclude: ReadonlySet<string>) =>
    link.ask(
      kind,
      to => to.byte(roleByte(role)).texts(exclude),
      frame => frame.byte() === 1,
    )

  /** `ticket`: all of it but the worker. */
  const dispatchIn = (frame: Frame, id: number, ticket: Omit<LiveTicket, 'worker'>): Dispatch => {
    const [number, index] = [frame.number(), frame.number()]
    const worker: WorkerSpec | undefined = link.workers.get(number)
    if (worker === undefined) throw new RangeError(`an answer with the worker ${number}, which is none`)
    link.hold(id, { ...ticket, worker })
    const end = (how: 'succeeded' | 'failed' | 'ignored') => () => link.release(id, how)
    return { worker, index, succeeded: end('succeeded'), failed: end('failed'), ignored: end('ignored') }
  }

  return {
    any(role, exclude) {
      const there = (known.room & (role === 'decode' ? ROOM.decode : ROOM.prefill)) !== 0
      return exclude.size === 0 && there ? true : yes(ASK.any, role, exclude)
    },
    mayRetry: (role, exclude) => yes(ASK.mayRetry, role, exclude),
    requestCame: () => link.tell(ASK.requestCame),
    toPrefill: (prefixKey, tokens, exclude) =>
      link.ask(
        ASK.prefill,
        to =>
          to
            .number(prefixKey ?? NaN)
            .number(tokens)
            .texts(exclude),
        (frame, id) =>
          frame.kind === TELL.none ? undefined : dispatchIn(frame, id, { role: 'prefill', tokens }),
      ),
    toRelease: exclude =>
      link.ask(
        ASK.release,
        to => to.texts(exclude),
        (frame, id) =>
          frame.kind === TELL.none ? undefined : dispatchIn(frame, id, { role: 'decode', tokens: 0 }),
      ),
    toDecode(request, given, tokens, exclude) {
      const handoff = given && alone(rawHandoff(given))
      const read = (frame: Frame, id: number): DecodePlacement | undefined => {
        if (frame.kind === TELL.none) return undefined
        const dispatch = dispatchIn(frame, id, { role: 'decode', tokens, placed: { request, handoff } })
        const [reason, policy, band, similarity, covered] = [
          frame.text(),
          frame.text(),
          readMaybe(frame),
          readMaybe(frame),
          readMaybe(frame),
        ]
        const decision = { worker: dispatch.index, reason, ...(band !== undefined && { band }) }
        // The owner lets go of both with the ticket; a request that has left without its end being said has ended all the same.
        return { dispatch, decision, policy, similarity, covered, left: dispatch.ignored }
      }
      return link.ask(
        ASK.decode,
        to => {
          to.text(request).number(tokens).texts(exclude)
          writeHandoff(to, handoff)
        },
        read,
      )
    },
  }
}

function alone(handoff: RawHandoff): RawHandoff {
  const { counts } = handoff
  return counts !== undefined && counts.buffer.byteLength > MOST_TIMES * counts.length
    ? { ...handoff, counts: Buffer.from(counts) }
    : handoff
}
