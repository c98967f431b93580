/**
 * Decode steps of engines that share devices. Each engine has its own host part of a step; the device parts
 * of the engines on one device slow each other (`SharedDevice`). If the parts overlap, both begin with the
 * step, which ends with the later one; otherwise the device's part follows the host's. A step is at most two
 * events of its own, and each event costs a pass over the engines of one device.
 */
import { type CostProfile, DEFAULT_SHARING } from '../cost/profile.ts'
import { SharedDevice } from './shared-device.ts'

/** Queues an event. */
export interface SharedStepEvents {
  readonly hostEndsAt: (timeUs: number, decoder: number) => void
  /** The last time given for a device is the valid one; `deviceDue` ignores the events of earlier ones. */
  readonly deviceDueAt: (timeUs: number, device: number) => void
}

export class SharedSteps {
  /** [decoders] when the running step began. */
  readonly beganUs: Float64Array

  readonly #perDevice: number
  readonly #overlaps: boolean
  readonly #events: SharedStepEvents
  readonly #devices: readonly SharedDevice[]
  /** [devices] time of the last queued event. */
  readonly #queuedUs: Float64Array
  /** [decoders] device parts that wait for the host's, and parts of the step that have not ended. */
  readonly #deviceUs: Float64Array
  readonly #parts: Uint8Array

  constructor(decoders: number, perDevice: number, { decode }: CostProfile, events: SharedStepEvents) {
    this.beganUs = new Float64Array(decoders)
    this.#perDevice = perDevice
    this.#overlaps = decode.host?.overlaps === true
    this.#events = events
    const devices = Math.ceil(decoders / perDevice)
    this.#devices = Array.from({ length: devices }, () => new SharedDevice(decode.sharing ?? DEFAULT_SHARING))
    this.#queuedUs = new Float64Array(devices).fill(Infinity)
    this.#deviceUs = new Float64Array(decoders)
    this.#parts = new Uint8Array(decoders)
  }

  begin(decoder: number, hostUs: number, deviceUs: number, nowUs: number): void {
    this.beganUs[decoder] = nowUs
    this.#deviceUs[decoder] = deviceUs
    this.#parts[decoder] = hostUs > 0 ? 2 : 1
    if (hostUs > 0) this.#events.hostEndsAt(nowUs + hostUs, decoder)
    if (hostUs === 0 || this.#overlaps) this.#enter(decoder, nowUs)
  }

  /** The decoder if its step has ended. */
  hostEnded(decoder: number, nowUs: number): number | undefined {
    if (!this.#overlaps) this.#enter(decoder, nowUs)
    return this.#partEnded(decoder)
  }

  /** The decoder whose step has ended, if any. */
  deviceDue(device: number, nowUs: number): number | undefined {
    const shared = this.#devices[device]!
    if (shared.dueUs !== nowUs) return undefined // another step has entered or left since it was queued
    const decoder = shared.end()
    this.#queuedUs[device] = Infinity
    this.#queue(device)
    return this.#partEnded(decoder)
  }

  #partEnded(decoder: number): number | undefined {
    return --this.#parts[decoder]! === 0 ? decoder : undefined
  }

  #enter(decoder: number, nowUs: number): void {
    const device = Math.floor(decoder / this.#perDevice)
    this.#devices[device]!.enter(decoder, this.#deviceUs[decoder]!, nowUs)
    this.#queue(device)
  }

  #queue(device: number): void {
    const { dueUs } = this.#devices[device]!
    if (dueUs === this.#queuedUs[device] || dueUs === Infinity) return
    this.#queuedUs[device] = dueUs
    this.#events.deviceDueAt(dueUs, device)
  }
}
