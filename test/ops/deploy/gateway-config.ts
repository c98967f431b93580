/**
 * The gateway's file out of a ConfigMap, as the gateway itself reads it, and whether the objects around it
 * fit.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Settings } from '../../../src/gateway/config/settings.ts'
import { type KubernetesObject, ofKind, workloadsIn } from './objects.ts'
import { eldr } from './tools.ts'

export const gatewayIn = (objects: readonly KubernetesObject[]): KubernetesObject =>
  ofKind(objects, 'Deployment')[0]!

/** Those that must look like something. */
const SECRETS: Readonly<Record<string, string>> = { ELDR_REPLICA_STORE: 'redis://:a-secret@store:6379' }

/**
 * What `eldr config print` makes of the file with the arguments and the environment of the deployment.
 * Secrets lie in files that are not here: others stand in for them. Throws when the gateway would not start
 * with it.
 */
export async function settingsOf(objects: readonly KubernetesObject[]): Promise<Settings> {
  const folder = await mkdtemp(join(tmpdir(), 'eldr-config-'))
  try {
    const { args, env: given = [] } = gatewayIn(objects).spec.template.spec.containers[0]!
    const file = join(folder, 'eldr.yaml')
    await writeFile(file, ofKind(objects, 'ConfigMap')[0]!.data!['eldr.yaml']!)
    const alone = await eldr(['config', 'check', file])
    if (alone.code !== 0) throw new Error(alone.stderr)
    const env: NodeJS.ProcessEnv = {}
    for (const { name, value = SECRETS[name] ?? 'a-secret' } of given) {
      env[name] = value.startsWith('/etc/eldr-secrets/') ? join(folder, name) : value
      await writeFile(join(folder, name), `a-secret-for-${name}\n`)
    }
    if (args[0] !== 'serve') throw new Error(`expected serve, found ${args[0]}`)
    const flags = args.slice(1).map(arg => (arg === '/etc/eldr/eldr.yaml' ? file : arg))
    const { code, stdout, stderr } = await eldr(['config', 'print', '--json', ...flags], { env })
    if (code !== 0 || stderr !== '') throw new Error(stderr)
    return (JSON.parse(stdout) as { settings: Settings }).settings
  } finally {
    await rm(folder, { recursive: true })
  }
}

/** Ports, drain time and workers that are named in the file against the objects. */
export function problemsOfSettings(
  { server, workers, discovery }: Settings,
  objects: readonly KubernetesObject[],
  namespace: string,
): string[] {
  const { spec } = gatewayIn(objects).spec.template
  const [container] = spec.containers
  const port = (wanted: string) => container!.ports.find(({ name }) => name === wanted)?.containerPort
  const stopMs = container!.lifecycle!.preStop.sleep.seconds * 1000 + server.shutdownGraceMs
  const scheme = server.tls === undefined ? 'HTTP' : 'HTTPS'
  const sets = workloadsIn(objects).filter(({ kind }) => kind === 'StatefulSet')
  const pods = sets.flatMap(({ metadata, spec: set }) =>
    Array.from(
      { length: set.replicas! },
      (_, at) =>
        `${metadata.name}-${at}.${set.serviceName}.${namespace}.svc:${set.template.spec.containers[0]!.ports[0]!.containerPort}`,
    ),
  )
  const asked = [...workers.prefill, ...workers.decode].map(({ url }) =>
    new URL(url).host.replace(/\.svc\.[^:]*/, '.svc'),
  )
  return [
    ...(server.host === '0.0.0.0' ? [] : [`listens on ${server.host}`]),
    ...(port('http') === server.port ? [] : ['http is another port']),
    ...(port('metrics') === server.metricsPort ? [] : ['metrics is another port']),
    ...(spec.terminationGracePeriodSeconds * 1000 >= stopMs + 5_000
      ? []
      : ['is killed while streams may still go on']),
    ...((container!.livenessProbe!.httpGet.scheme ?? 'HTTP') === scheme
      ? []
      : ['probes speak another scheme']),
    ...(sets.length === 0 ||
    discovery.kubernetes?.enabled === true ||
    JSON.stringify(asked.toSorted()) === JSON.stringify(pods.toSorted())
      ? []
      : [`asks ${asked.join(', ')}, but there are ${pods.join(', ')}`]),
  ]
}
