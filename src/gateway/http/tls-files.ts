/** Certificates and keys for clients and workers. Errors in them are reported before anything is started. */
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

/** TLS options for connections to workers. */
export function workerTls({ caFile, certFile, keyFile, insecure }: WorkerTls) {
  const options = {
    ca: caFile && readPem(caFile),
    cert: certFile && readPem(certFile),
    key: keyFile && readPem(keyFile),
  }
  checkPair(options, [caFile, certFile, keyFile].filter(file => file !== undefined).join(', '))
  return { ...options, rejectUnauthorized: insecure !== true }
}
