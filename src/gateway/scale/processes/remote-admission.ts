/** Admission by the owner, which applies the limits to all relays together. */
import { type AdmissionLimits, overloaded } from '../../http/admission.ts'
import { type RefusalCode, Refusal } from '../../http/refusal.ts'
import type { Gate } from '../../flow/handle.ts'
import type { StopSignal } from '../../upstream/upstreams.ts'
import type { Frame } from './frames.ts'
import { ASK, ROOM, TELL } from './messages.ts'
import type { RelayLink } from './relay-link.ts'

export class RemoteAdmission implements Gate {
  readonly #link: RelayLink
  readonly #limits: AdmissionLimits
  /**
   * Bits of ROOM: `full` and `mustWait` as last sent by the owner, workers as of the last admitted request.
   */
  room = 0

  constructor(link: RelayLink, limits: AdmissionLimits) {
    this.#link = link
    this.#limits = limits
  }

  setRoom(room: number): void {
    this.room = (this.room & (ROOM.prefill | ROOM.decode)) | room
  }

  get mustWait(): boolean {
    return (this.room & ROOM.mustWait) !== 0
  }

  check(): void {
    if ((this.room & ROOM.full) !== 0) throw overloaded(this.#limits, this.#limits.queueSize)
  }

  async enter(stop: StopSignal): Promise<void> {
    let unhook = () => {}
    let cancel = () => {}
    const stopped = new Promise<never>((_, reject) => {
      unhook = stop.onStop(reason => {
        cancel()
        reject(reason)
      })
    })
    const admitted = this.#link.ask(
      ASK.enter,
      () => {},
      frame => this.#entered(frame),
      { onCancel: call => (cancel = call) },
    )
    try {
      await Promise.race([admitted, stopped])
    } finally {
      unhook()
    }
  }

  #entered(frame: Frame): void {
    if (frame.kind !== TELL.admitted)
      throw new Refusal(frame.text() as RefusalCode, { retryAfterSeconds: frame.number() })
    this.#link.running++
    this.room = (this.room & (ROOM.full | ROOM.mustWait)) | frame.byte()
  }

  leave(): void {
    this.#link.running--
    this.#link.tell(ASK.leave)
  }
}
