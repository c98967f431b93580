/** Objects of Kubernetes as far as the checks look at them, and who selects whom. */
import { parseAllDocuments } from 'yaml'
import type { RuleFile } from '../prometheus/expressions.ts'

export type Labels = Readonly<Record<string, string>>

export interface Probe {
  readonly httpGet: { readonly path: string; readonly port: string | number; readonly scheme?: string }
}

export interface Container {
  readonly name: string
  readonly image: string
  readonly args: readonly string[]
  readonly env?: readonly { readonly name: string; readonly value?: string }[]
  readonly ports: readonly { readonly name: string; readonly containerPort: number }[]
  readonly startupProbe?: Probe
  readonly livenessProbe?: Probe
  readonly readinessProbe?: Probe
  readonly lifecycle?: { readonly preStop: { readonly sleep: { readonly seconds: number } } }
  readonly resources: { readonly requests: Labels; readonly limits: Labels }
  readonly securityContext: object
  readonly volumeMounts: readonly {
    readonly name: string
    readonly mountPath: string
    readonly readOnly?: boolean
  }[]
}

export interface Volume {
  readonly name: string
  readonly configMap?: { readonly name: string }
  readonly secret?: { readonly secretName: string }
}

export interface PodSpec {
  readonly automountServiceAccountToken: boolean
  readonly enableServiceLinks: boolean
  readonly serviceAccountName?: string
  readonly terminationGracePeriodSeconds: number
  readonly securityContext: object
  readonly containers: readonly Container[]
  readonly initContainers?: readonly Container[]
  readonly volumes: readonly Volume[]
}

export interface Peer {
  readonly podSelector?: Selector
  readonly ipBlock?: object
}

export interface Rule {
  readonly from?: readonly Peer[]
  readonly to?: readonly Peer[]
  readonly ports?: readonly { readonly port: string | number }[]
}

export interface Selector {
  readonly matchLabels?: Labels
  readonly matchExpressions?: readonly {
    readonly key: string
    readonly operator: string
    readonly values: readonly string[]
  }[]
}

export interface KubernetesObject {
  readonly apiVersion: string
  readonly kind: string
  readonly metadata: { readonly name: string; readonly namespace?: string; readonly labels?: Labels }
  readonly data?: Labels
  /** Of a Role. */
  readonly rules?: readonly object[]
  /** Of a RoleBinding. */
  readonly roleRef?: { readonly kind: string; readonly name: string }
  readonly subjects?: readonly { readonly kind: string; readonly name: string; readonly namespace?: string }[]
  readonly spec: {
    readonly replicas?: number
    readonly serviceName?: string
    readonly clusterIP?: string
    readonly selector: Selector & Labels
    readonly template: { readonly metadata: { readonly labels: Labels }; readonly spec: PodSpec }
    readonly volumeClaimTemplates?: readonly { readonly metadata: { readonly name: string } }[]
    readonly ports: readonly {
      readonly name: string
      readonly port: number
      readonly targetPort?: string | number
    }[]
    readonly endpoints: readonly { readonly port: string; readonly path: string }[]
    readonly jobLabel?: string
    /** Of a PrometheusRule. */
    readonly groups?: RuleFile['groups']
    readonly podSelector: Selector
    readonly policyTypes?: readonly string[]
    readonly ingress?: readonly Rule[]
    readonly egress?: readonly Rule[]
    readonly scaleTargetRef: { readonly kind: string; readonly name: string }
    readonly maxUnavailable?: number
  }
}

export function objectsIn(text: string): KubernetesObject[] {
  return parseAllDocuments(text).flatMap(document => {
    if (document.errors.length > 0) throw document.errors[0]!
    const value = document.toJS() as KubernetesObject | null
    return value === null ? [] : [value]
  })
}

export const ofKind = (objects: readonly KubernetesObject[], ...kinds: string[]): KubernetesObject[] =>
  objects.filter(({ kind }) => kinds.includes(kind))

export const workloadsIn = (objects: readonly KubernetesObject[]): KubernetesObject[] =>
  ofKind(objects, 'Deployment', 'StatefulSet')

export function selects({ matchLabels = {}, matchExpressions = [] }: Selector, labels: Labels): boolean {
  return (
    Object.entries(matchLabels).every(([key, value]) => labels[key] === value) &&
    matchExpressions.every(({ key, operator, values }) => {
      if (operator !== 'In') throw new Error(`these checks do not know the operator ${operator}`)
      return values.includes(labels[key] ?? '')
    })
  )
}

export const podLabels = ({ spec }: KubernetesObject): Labels => spec.template.metadata.labels

/** Number of a port of a pod, which may be given by its name. */
export function portOf({ containers }: PodSpec, port: string | number): number | undefined {
  return containers
    .flatMap(({ ports }) => ports)
    .find(({ name, containerPort }) => name === port || containerPort === port)?.containerPort
}
