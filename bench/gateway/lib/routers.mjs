// The columns of the table: how each router is started, or why it cannot be.
import { spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { freePort } from './processes.mjs'

const here = fileURLToPath(new URL('..', import.meta.url))
const venv = join(here, '.venv')
const vllmRouter = join(venv, 'bin', 'vllm-router')
// In Debian it is only on root's path.
const folders = [
  join(venv, 'debian', 'usr', 'sbin'),
  ...(process.env.PATH ?? '').split(delimiter),
  join('/', 'usr', 'sbin'),
]
const nginx = folders.map(folder => join(folder, 'nginx')).find(file => existsSync(file))

const mainOf = build => join(build, 'cli', 'main.js')

/** Worker arguments for all routers except nginx. */
const fleet = ({ prefill, decode }) => [
  ...prefill.flatMap(url => ['--prefill', url]),
  ...decode.flatMap(url => ['--decode', url]),
]

/**
 * `hops: 1`: one hop to a decode worker without a hand-off, a lower bound and not a competitor. `command`
 * gives the program and its arguments for {port, prefill, decode, artifact}.
 */
export function routers({ dist, against }) {
  const node = (label, script, ...flags) => ({
    label,
    command: told => [
      process.execPath,
      [join(here, 'proxies', script), ...fleet(told), '--port', String(told.port), ...flags],
    ],
  })
  const eldr = (label, build, ...flags) => ({
    label,
    decides: true,
    missing: existsSync(mainOf(build)) ? undefined : `${mainOf(build)} is not built`,
    command: told => {
      const policy = ['--policy', 'eldr', '--artifact', told.artifact]
      return [
        process.execPath,
        [mainOf(build), 'serve', ...fleet(told), ...policy, '--port', String(told.port), ...flags],
      ]
    },
  })
  return {
    eldr: eldr('eldr', dist),
    ...(against !== undefined && { before: eldr('eldr before', against) }),
    // eldr logs each request by default and vllm-router is started without logs, so this column is the fair
    // comparison.
    'eldr-quiet': eldr('eldr, --log-level error', dist, '--log-level', 'error'),
    // What the token ids cost that resumed streams need.
    'eldr-resume': eldr('eldr, --resume', dist, '--resume'),
    'vllm-router': {
      label: `vllm-router ${versionOf(vllmRouter)}`,
      missing: existsSync(vllmRouter) ? undefined : 'not installed: run bench/gateway/install.sh',
      command: async told => {
        const mode = [
          '--vllm-pd-disaggregation',
          '--kv-connector',
          'nixl',
          '--policy',
          'round_robin',
          '--log-level',
          'error',
        ]
        const ports = [
          '--host',
          '127.0.0.1',
          '--port',
          String(told.port),
          '--prometheus-port',
          String(await freePort()),
        ]
        return [vllmRouter, [...mode, ...fleet(told), ...ports]]
      },
    },
    undici: node('node:http + undici, parses and serializes', 'undici.mjs'),
    splice: node('node:http + undici, splice', 'undici.mjs', '--splice'),
    raw: node('node:net', 'raw.mjs'),
    nginx: {
      label: `nginx ${nginxVersion()}, one hop`,
      hops: 1,
      missing:
        nginx === undefined
          ? 'not installed: run bench/gateway/install.sh, or get it from Debian'
          : undefined,
      command: ({ port, decode }) => [nginx, ['-c', nginxConfig(port, decode), '-g', 'daemon off;']],
    },
  }
}

/** @param {string} program of the virtual environment */
function versionOf(program) {
  if (!existsSync(program)) return ''
  const python = join(venv, 'bin', 'python')
  return spawnSync(python, ['-c', 'import importlib.metadata as m; print(m.version("vllm-router"))'], {
    encoding: 'utf8',
  }).stdout.trim()
}

function nginxVersion() {
  if (nginx === undefined) return ''
  return /nginx\/([\d.]+)/.exec(spawnSync(nginx, ['-v'], { encoding: 'utf8' }).stderr)?.[1] ?? ''
}

/** A plain reverse proxy: keep-alive on both sides, nothing buffered. The file's path. */
function nginxConfig(port, decode) {
  const folder = mkdtempSync(join(tmpdir(), 'eldr-nginx-'))
  const file = join(folder, 'nginx.conf')
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map(name => `${name}_temp_path ${folder}/${name};`)
    .join('\n  ')
  writeFileSync(
    file,
    `worker_processes 1;
pid ${folder}/nginx.pid;
error_log stderr error;
events { worker_connections 4096; }
http {
  access_log off;
  keepalive_requests 1000000;
  client_body_buffer_size 128k;
  ${temporary}
  upstream decode {
${decode.map(url => `    server ${new URL(url).host};`).join('\n')}
    keepalive 512;
    keepalive_requests 1000000;
  }
  server {
    listen 127.0.0.1:${port} backlog=4096;
    location / {
      proxy_pass http://decode;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }
  }
}
`,
  )
  return file
}
