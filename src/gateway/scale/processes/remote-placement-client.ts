/** The placement client of a relay: asks the owner, reads its response and holds the ticket. */
import type { Role } from '../../../cluster/worker.ts'
import { CONVERSATION_STEPS } from '../../observe/request-observer.ts'
import type { PlacementClient } from '../../routing/placement-client.ts'
import type { DecodePlacement, Placement } from '../../routing/placement.ts'
import type { HandoffExperts } from '../../routing/read-experts.ts'
import type { Frame } from './frames.ts'
import { ASK, readMaybe, roleByte, ROOM, TELL, writeHandoff, writeTurn } from './messages.ts'
import type { LiveTicket, RelayLink } from './relay-link.ts'

/** The response to admission says whether there are workers, so this need not be asked again. */
export interface KnownRoom {
  readonly room: number
}

export function remotePlacementClient(link: RelayLink, admission: KnownRoom): PlacementClient {
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
      end(how, seen = {}) {
        link.release(id, how, seen)
        if (seen.unreachable) link.tell(ASK.passiveFailure, 0, to => to.text(worker.id))
      },
    }
  }

  const decodePlacementIn = (
    frame: Frame,
    id: number,
    ticket: Omit<LiveTicket, 'worker'>,
  ): DecodePlacement | undefined => {
    if (frame.kind === TELL.none) return undefined
    const placement = placementIn(frame, id, ticket)
    const [reason, policy, band, similarity, covered, step] = [
      frame.text(),
      frame.text(),
      readMaybe(frame),
      readMaybe(frame),
      readMaybe(frame),
      frame.text(),
    ]
    const decision = { worker: placement.index, reason, band }
    const conversation = CONVERSATION_STEPS.find(each => each === step)
    return { ...placement, decision, policy, similarity, covered, conversation }
  }

  return {
    any(role, exclude) {
      const known = (admission.room & (role === 'decode' ? ROOM.decode : ROOM.prefill)) !== 0
      return exclude.size === 0 && known ? true : yes(ASK.any, role, exclude)
    },
    mayRetry: (role, exclude) => yes(ASK.mayRetry, role, exclude),
    mayResume: exclude =>
      link.ask(
        ASK.mayResume,
        to => to.texts(exclude),
        frame => frame.byte() === 1,
      ),
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
    toDecode(request, given, tokens, exclude, turn) {
      const handoff = given && expertsOf(given)
      return link.ask(
        ASK.decode,
        to => {
          to.text(request).number(tokens).texts(exclude)
          writeHandoff(to, handoff)
          writeTurn(to, turn)
        },
        (frame, id) => decodePlacementIn(frame, id, { role: 'decode', tokens, placed: { request, handoff } }),
      )
    },
    toHolder(request, turn, exclude) {
      const { tokens } = turn
      return link.ask(
        ASK.holder,
        to => {
          to.text(request).texts(exclude)
          writeTurn(to, turn)
        },
        (frame, id) =>
          decodePlacementIn(frame, id, { role: 'decode', tokens, placed: { request, handoff: undefined } }),
      )
    },
  }
}

/** Without what only decode needs, because the ticket keeps it while the request runs. */
function expertsOf({ counts, routedExperts, promptTokens }: HandoffExperts): HandoffExperts {
  return { counts, routedExperts, promptTokens }
}
