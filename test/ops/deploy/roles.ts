/** Who may ask the API of Kubernetes what: lists of what is too much, and of what leads nowhere. */
import { type KubernetesObject, ofKind } from './objects.ts'

/** All that discovery needs, and the only permissions in the manifests. */
const NEEDED = [{ apiGroups: ['discovery.k8s.io'], resources: ['endpointslices'], verbs: ['list', 'watch'] }]

/** Whether a binding names the service account of these pods. */
export function mayAskTheApi({ spec }: KubernetesObject, objects: readonly KubernetesObject[]): boolean {
  const account = spec.template.spec.serviceAccountName
  return ofKind(objects, 'RoleBinding').some(({ subjects }) =>
    subjects!.some(({ kind, name }) => kind === 'ServiceAccount' && name === account),
  )
}

function bindingProblems(
  { roleRef, subjects }: KubernetesObject,
  objects: readonly KubernetesObject[],
  namespace: string,
): string[] {
  const has = (kind: string, wanted: string) =>
    ofKind(objects, kind).some(({ metadata: { name } }) => name === wanted)
  return [
    ...(roleRef!.kind === 'Role' && has('Role', roleRef!.name)
      ? []
      : [`no ${roleRef!.kind} ${roleRef!.name}`]),
    ...subjects!.filter(({ kind, name }) => !has(kind, name)).map(({ kind, name }) => `no ${kind} ${name}`),
    ...subjects!
      .filter(subject => subject.namespace !== namespace)
      .map(({ name }) => `${name} is of another namespace`),
  ]
}

export function problemsOfRoles(objects: readonly KubernetesObject[], namespace: string): string[] {
  const bindings = ofKind(objects, 'RoleBinding')
  return [
    ...ofKind(objects, 'ClusterRole', 'ClusterRoleBinding').map(
      ({ kind, metadata }) => `${kind} ${metadata.name}: holds in every namespace`,
    ),
    ...ofKind(objects, 'Role').flatMap(({ metadata: { name }, rules }) => [
      ...(JSON.stringify(rules) === JSON.stringify(NEEDED)
        ? []
        : [`Role ${name}: lets do other things than to list and watch endpointslices`]),
      ...(bindings.some(({ roleRef }) => roleRef!.name === name) ? [] : [`Role ${name}: it has no binding`]),
    ]),
    ...bindings.flatMap(binding =>
      bindingProblems(binding, objects, namespace).map(
        what => `RoleBinding ${binding.metadata.name}: ${what}`,
      ),
    ),
  ]
}
