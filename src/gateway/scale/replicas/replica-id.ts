import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'

/** For a replica that was given none: nobody else has it. */
export function madeUpId(): string {
  return `${hostname().slice(0, 48)}-${randomBytes(4).toString('hex')}`
}
