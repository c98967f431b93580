/** PlacementClient by the owner: what a relay asks, what it is answered, and the tickets that come of it. */
import type { Role } from '../../../cluster/worker.ts'
import type { PlacementClient } from '../../routing/placement-client.ts'
import type { DecodePlacement, Placement } from '../../routing/placement.ts'
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

  /** Reads the placement in a response. `ticket`: all of it but the worker. */
  const placementIn = (frame: Frame, id: number, ticket: Omit<LiveTicket, 'worker'>): Placement => {
    const [number, index] = [frame.number(), frame.number()]
    const worker = link.workers.get(number)
    if (worker === undefined) throw new RangeError(`response with unknown worker number ${number}`)
    link.hold(id, { ...ticket, worker })
    return {
      worker,
      index,
      end(how, unreachable = false) {
        link.release(id, how)
        if (unreachable) link.tell(ASK.passiveFailure, 0, to => to.text(worker.id))
      },
    }
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
          frame.kind === TELL.none ? undefined : placementIn(frame, id, { role: 'prefill', tokens }),
      ),
    toRelease: exclude =>
      link.ask(
        ASK.release,
        to => to.texts(exclude),
        (frame, id) =>
          frame.kind === TELL.none ? undefined : placementIn(frame, id, { role: 'decode', tokens: 0 }),
      ),
    toDecode(request, given, tokens, exclude) {
      const handoff = given && alone(rawHandoff(given))
      const read = (frame: Frame, id: number): DecodePlacement | undefined => {
        if (frame.kind === TELL.none) return undefined
        const placement = placementIn(frame, id, { role: 'decode', tokens, placed: { request, handoff } })
        const [reason, policy, band, similarity, covered] = [
          frame.text(),
          frame.text(),
          readMaybe(frame),
          readMaybe(frame),
          readMaybe(frame),
        ]
        const decision = { worker: placement.index, reason, band }
        return { ...placement, decision, policy, similarity, covered }
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
