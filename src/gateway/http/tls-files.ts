/** Certificates and keys, for clients and for workers. What is wrong with one is said before anything is begun. */
import { readFileSync } from 'node:fs'
import { createSecureContext, type SecureContextOptions } from 'node:tls'
import { EldrError } from '../../errors.ts'
import type { WorkerTls } from '../config/settings.ts'

export function readPem(file: string): Buffer {
  try {
    return readFileSync(file)
  } catch (cause) {
    throw new EldrError('ELDR_FILE_UNREADABLE', { file, cause })
  }
}

export function checkPair(options: SecureContextOptions, files: string): void {
  try {
    createSecureContext(options)
  } catch (cause) {
    const found = `${files} (${(cause as Error).message})`
    throw new EldrError('ELDR_CONFIG_INVALID', {
      found,
      expected: 'a certificate and its private key, PEM',
      cause,
    })
  }
}

/** How the gateway speaks TLS to workers. */
export function workerTls({ caFile, certFile, keyFile, insecure }: WorkerTls) {
  const options = {
    ...(caFile !== undefined && { ca: readPem(caFile) }),
    ...(certFile !== undefined && { cert: readPem(certFile) }),
    ...(keyFile !== undefined && { key: readPem(keyFile) }),
  }
  checkPair(options, [caFile, certFile, keyFile].filter(file => file !== undefined).join(', '))
  return { ...options, ...(insecure === true && { rejectUnauthorized: false }) }
}
