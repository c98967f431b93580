/** A certificate authority and certificates of one gateway, which replace each other in the same files. */
import { execFileSync } from 'node:child_process'
import { copyFileSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { createHash, X509Certificate } from 'node:crypto'
import { join } from 'node:path'

const KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes']
const openssl = (...args: string[]) => void execFileSync('openssl', args, { stdio: 'pipe' })

export class Certificates {
  readonly caFile: string
  readonly certFile: string
  readonly keyFile: string
  readonly #folder: string
  readonly #address: string
  #serial = 0

  constructor(folder: string, address: string) {
    this.#folder = folder
    this.#address = address
    this.caFile = join(folder, 'ca.crt')
    this.certFile = join(folder, 'gateway.crt')
    this.keyFile = join(folder, 'gateway.key')
    const caKey = join(folder, 'ca.key')
    openssl('req', '-x509', ...KEY, '-days', '2', '-subj', '/CN=chaos', '-keyout', caKey, '-out', this.caFile)
    this.rotate()
  }

  /** Replaces certificate and key. Returns the fingerprint of the new one. */
  rotate(): string {
    const made = (name: string) => join(this.#folder, `new.${name}`)
    const serial = String(++this.#serial)
    openssl('req', ...KEY, '-subj', `/CN=gateway ${serial}`, '-keyout', made('key'), '-out', made('csr'))
    writeFileSync(made('ext'), `subjectAltName=IP:${this.#address}\n`)
    const ca = ['-CA', this.caFile, '-CAkey', join(this.#folder, 'ca.key'), '-set_serial', serial]
    openssl(
      'x509',
      '-req',
      '-days',
      '2',
      ...ca,
      '-in',
      made('csr'),
      '-extfile',
      made('ext'),
      '-out',
      made('crt'),
    )
    for (const [name, file] of [
      ['key', this.keyFile],
      ['crt', this.certFile],
    ] as const) {
      copyFileSync(made(name), `${file}.tmp`)
      renameSync(`${file}.tmp`, file)
    }
    return this.fingerprint
  }

  get fingerprint(): string {
    return fingerprintOf(new X509Certificate(readFileSync(this.certFile)).raw)
  }
}

export function fingerprintOf(certificate: Uint8Array): string {
  return createHash('sha256').update(certificate).digest('hex').slice(0, 16)
}
