// HEALTHCHECK of the container: exit code 0 if /health returns 200, otherwise 1 with the reason on one line.
// ELDR_HEALTH_URL overrides the default address (ELDR_PORT on this machine), for example
// https://127.0.0.1:8443/health.
import { get } from 'node:http'
import { get as getSecurely } from 'node:https'

const TIMEOUT_MS = 2_500

function fail(reason) {
  process.stderr.write(`${reason}\n`)
  process.exit(1)
}

function addressFrom({ ELDR_HEALTH_URL, ELDR_PORT }) {
  // Kubernetes sets ELDR_PORT=tcp://… for a service named eldr; the gateway ignores that too.
  const port = /^\d+$/.test(ELDR_PORT ?? '') ? ELDR_PORT : '8000'
  const text = ELDR_HEALTH_URL || `http://127.0.0.1:${port}/health`
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url?.protocol !== 'http:' && url?.protocol !== 'https:')
    fail(`ELDR_HEALTH_URL must be an http or https URL, found ${text}`)
  return url
}

const url = addressFrom(process.env)
const ask = url.protocol === 'https:' ? getSecurely : get
// The certificate is for the name that clients use, not for 127.0.0.1, and does not matter for liveness.
const request = ask(url, { timeout: TIMEOUT_MS, rejectUnauthorized: false, agent: false }, ({ statusCode }) =>
  statusCode === 200 ? process.exit(0) : fail(`${url} answered ${statusCode}`),
)
request.on('timeout', () => fail(`${url} did not answer within ${TIMEOUT_MS} ms`))
request.on('error', error => fail(`${url}: ${error.code ?? error.message}`))
