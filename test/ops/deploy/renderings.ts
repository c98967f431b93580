/** Everything that a user might apply: the plain manifests, and the chart with several files of values. */
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { CHART, output, ROOT, tool } from './tools.ts'

export const NAMESPACE = 'eldr'
export const VALUES = readdirSync(join(CHART, 'ci')).map(file => join(CHART, 'ci', file))

export const helm = tool('helm')
export const kubeconform = tool('kubeconform')
const [kubectl, kustomize] = [tool('kubectl'), tool('kustomize')]
export const canKustomize = kubectl !== undefined || kustomize !== undefined

export function kustomized(folder: string): Promise<string> {
  const path = join(ROOT, 'deploy', 'kubernetes', folder)
  return kubectl === undefined ? output(kustomize!, ['build', path]) : output(kubectl, ['kustomize', path])
}

export const templated = (...args: readonly string[]): Promise<string> =>
  output(helm!, ['template', 'eldr', CHART, '--namespace', NAMESPACE, ...args])

/** Each is rendered once, however many tests look at it. */
function once(render: () => Promise<string>): () => Promise<string> {
  let text: Promise<string> | undefined
  return () => (text ??= render())
}

/** Those whose gateways find their workers themselves. */
export const DISCOVERING: ReadonlySet<string> = new Set([
  'deploy/kubernetes/discovery',
  'the chart with ci/discovery-values.yaml',
])

/** Name, whether the tool for it is here, and the text. */
export const RENDERINGS: readonly (readonly [string, boolean, () => Promise<string>])[] = [
  ['deploy/kubernetes', canKustomize, once(() => kustomized('.'))],
  ['deploy/kubernetes/discovery', canKustomize, once(() => kustomized('discovery'))],
  ['the chart as it is', helm !== undefined, once(() => templated())],
  ...VALUES.map(
    file =>
      [
        `the chart with ${file.slice(CHART.length + 1)}`,
        helm !== undefined,
        once(() => templated('--values', file)),
      ] as const,
  ),
]
