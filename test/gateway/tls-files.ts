/** Self-signed certificates for tests, made with openssl if available. */
import { execFileSync, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export const HAS_OPENSSL = spawnSync('openssl', ['version']).status === 0

export interface Pair {
  readonly certFile: string
  readonly keyFile: string
}

/** Certificates for a host (default: 127.0.0.1). `remove` deletes the files. */
export function makeCertificates<Name extends string>(
  ...names: Name[]
): Record<Name, Pair> & { remove(): void } {
  const folder = mkdtempSync(join(tmpdir(), 'eldr-tls-'))
  const pairs = names.map(name => {
    const pair = { certFile: join(folder, `${name}.crt`), keyFile: join(folder, `${name}.key`) }
    const kind = ['-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2']
    const subject = [
      '-subj',
      `/CN=${name}`,
      '-addext',
      `subjectAltName=${name === 'elsewhere' ? 'DNS:elsewhere.example' : 'IP:127.0.0.1'}`,
    ]
    execFileSync('openssl', ['req', ...kind, ...subject, '-keyout', pair.keyFile, '-out', pair.certFile], {
      stdio: 'pipe',
    })
    return [name, pair] as const
  })
  return {
    ...(Object.fromEntries(pairs) as Record<Name, Pair>),
    remove: () => rmSync(folder, { recursive: true, force: true }),
  }
}
