/**
 * Serves the dashboard's static files from memory. They need no authentication, since they contain no data:
 * the page reads it from the admin API. The content security policy allows only these files and connections
 * to this gateway.
 */
import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import { Refusal } from '../../http/refusal.ts'
import type { Exchange } from '../../http/exchange.ts'
import type { Outcome } from '../../observe/request-observer.ts'

/** The build output; tests that run the TypeScript sources use it too. */
const FOLDER = new URL(
  import.meta.url.endsWith('.js') ? '../../../dashboard/' : '../../../../dist/dashboard/',
  import.meta.url,
)

export const FILES = {
  '/dashboard': { file: 'index.html', type: 'text/html; charset=utf-8' },
  '/dashboard/app.js': { file: 'app.js', type: 'text/javascript; charset=utf-8' },
  '/dashboard/app.css': { file: 'app.css', type: 'text/css; charset=utf-8' },
  '/dashboard/icon.svg': { file: 'icon.svg', type: 'image/svg+xml' },
} as const
type PagePath = keyof typeof FILES

const CONTENT_SECURITY_POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
const HEADERS = {
  'content-security-policy': CONTENT_SECURITY_POLICY,
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  // Another release may have another page, so browsers must revalidate.
  'cache-control': 'no-cache',
  vary: 'accept-encoding',
}

interface PageFile {
  readonly body: Buffer
  readonly packed: Buffer
  readonly etag: string
}

export class PageFiles {
  readonly #read = new Map<PagePath, Promise<PageFile>>()

  async serve(exchange: Exchange, path: string): Promise<Outcome> {
    if (path === '/dashboard/') {
      exchange.answer(
        308,
        { ...HEADERS, location: '../dashboard', 'content-type': 'text/plain' },
        'The dashboard is at /dashboard.\n',
      )
      return 'ok'
    }
    if (!Object.hasOwn(FILES, path)) throw new Refusal('ELDR_NOT_FOUND')
    const { body, packed, etag } = await this.#of(path as PagePath)
    const { headers } = exchange.request
    const common = { ...HEADERS, 'content-type': FILES[path as PagePath].type, etag }
    const isPacked = /\bgzip\b/.test(String(headers['accept-encoding'] ?? ''))
    if (headers['if-none-match'] === etag) {
      exchange.response.writeHead(304, { ...common, 'x-request-id': exchange.id }).end()
      return 'ok'
    }
    exchange.answer(
      200,
      isPacked ? { ...common, 'content-encoding': 'gzip' } : common,
      isPacked ? packed : body,
    )
    return 'ok'
  }

  #of(path: PagePath): Promise<PageFile> {
    const known = this.#read.get(path)
    if (known !== undefined) return known
    const reading = read(FILES[path].file)
    this.#read.set(path, reading)
    reading.catch(() => this.#read.delete(path))
    return reading
  }
}

async function read(file: string): Promise<PageFile> {
  const body = await readFile(new URL(file, FOLDER)).catch((cause: unknown) => {
    throw new Refusal('ELDR_NOT_FOUND', {
      words: 'The dashboard is not built: run npm run build.',
      cause,
    })
  })
  const etag = `"${createHash('sha256').update(body).digest('hex').slice(0, 16)}"`
  return { body, packed: await promisify(gzip)(body, { level: 9 }), etag }
}
