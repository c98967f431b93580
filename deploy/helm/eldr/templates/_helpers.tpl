{{- define "eldr.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains "eldr" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-eldr" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "eldr.selector" -}}
app.kubernetes.io/name: eldr
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: gateway
{{- end -}}

{{- define "eldr.commonLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "eldr.labels" -}}
{{ include "eldr.selector" . }}
{{ include "eldr.commonLabels" . }}
{{- end -}}

{{- /* Labels of the objects of a worker role: (list . "prefill") */ -}}
{{- define "eldr.roleLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: eldr
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{ include "eldr.commonLabels" $root }}
{{- end -}}

{{- define "eldr.secretName" -}}
{{- if .Values.auth.existingSecret -}}
{{- .Values.auth.existingSecret -}}
{{- else if or .Values.auth.adminToken .Values.auth.apiKeys -}}
{{- printf "%s-tokens" (include "eldr.name" .) -}}
{{- end -}}
{{- end -}}

{{- /* Name of a role's StatefulSet or headless service: (list . "prefill" "statefulSet") */ -}}
{{- define "eldr.roleName" -}}
{{- $root := index . 0 -}}
{{- index $root.Values (index . 1) (index . 2) | default (printf "%s-%s" (include "eldr.name" $root) (index . 1)) -}}
{{- end -}}

{{- /* Workers of a role for the gateway's file: configured URLs, or the pods of a StatefulSet by name: (list . "prefill") */ -}}
{{- define "eldr.workers" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
{{- $given := index $root.Values.workers $role -}}
{{- if $given -}}
{{- toYaml $given -}}
{{- else if $root.Values.discovery.enabled -}}
[]
{{- else -}}
{{- $values := index $root.Values $role -}}
{{- $set := include "eldr.roleName" (list $root $role "statefulSet") -}}
{{- $service := include "eldr.roleName" (list $root $role "serviceName") -}}
{{- range $i := until (int $values.replicas) }}
- id: {{ printf "%s-%d" $role $i }}
  url: {{ printf "http://%s-%d.%s.%s.svc.%s:%d" $set $i $service $root.Release.Namespace $root.Values.clusterDomain (int $values.port) }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Discovery selects slices by the name of their service, a label that every slice has. */ -}}
{{- define "eldr.discovery" -}}
{{- range $role := list "prefill" "decode" -}}
{{- if index $.Values.workers $role -}}
{{- fail (printf "workers.%s and discovery.enabled exclude each other: workers are either configured or discovered" $role) -}}
{{- end -}}
{{- end -}}
kubernetes:
  enabled: true
  namespace: {{ .Release.Namespace }}
  prefillSelector: [kubernetes.io/service-name={{ include "eldr.roleName" (list . "prefill" "serviceName") }}]
  decodeSelector: [kubernetes.io/service-name={{ include "eldr.roleName" (list . "decode" "serviceName") }}]
{{- end -}}

{{- /* The user's settings, overridden by those that the chart must set so that ports and times match the other objects. */ -}}
{{- define "eldr.config" -}}
{{- range $key := list "host" "port" "metricsPort" "processes" "shutdownGraceMs" "tls" -}}
{{- if hasKey (dig "server" dict $.Values.config) $key -}}
{{- fail (printf "config.server.%s is set by the chart: use service.port, processes, drain.seconds or tls.secretName, and see values.yaml" $key) -}}
{{- end -}}
{{- end -}}
{{- range $role := list "prefill" "decode" -}}
{{- if hasKey (dig "workers" dict $.Values.config) $role -}}
{{- fail (printf "config.workers.%s is set by the chart: use workers.%s, or %s.statefulSet and %s.replicas" $role $role $role $role) -}}
{{- end -}}
{{- end -}}
{{- if hasKey (dig "replicas" dict $.Values.config) "url" -}}
{{- fail "config.replicas.url is set by the chart: use replicaStore.url or replicaStore.existingSecret" -}}
{{- end -}}
{{- range $key := list "enabled" "namespace" "prefillSelector" "decodeSelector" -}}
{{- if hasKey (dig "discovery" "kubernetes" dict $.Values.config) $key -}}
{{- fail (printf "config.discovery.kubernetes.%s is set by the chart: use discovery.enabled, prefill.serviceName and decode.serviceName" $key) -}}
{{- end -}}
{{- end -}}
{{- $server := dict "host" "0.0.0.0" "port" 8000 "metricsPort" 9464 "shutdownGraceMs" (mul (int .Values.drain.seconds) 1000) -}}
{{- if gt (int .Values.processes) 1 -}}
{{- $_ := set $server "processes" (int .Values.processes) -}}
{{- end -}}
{{- if .Values.tls.secretName -}}
{{- $_ := set $server "tls" (dict "certFile" "/etc/eldr-tls/tls.crt" "keyFile" "/etc/eldr-tls/tls.key") -}}
{{- end -}}
{{- $workers := dict "prefill" (include "eldr.workers" (list . "prefill") | fromYamlArray) "decode" (include "eldr.workers" (list . "decode") | fromYamlArray) -}}
{{- $own := dict "server" $server "workers" $workers -}}
{{- if .Values.discovery.enabled -}}
{{- $_ := set $own "discovery" (include "eldr.discovery" . | fromYaml) -}}
{{- end -}}
{{- if and .Values.replicaStore.url (not .Values.replicaStore.existingSecret) -}}
{{- $_ := set $own "replicas" (dict "url" .Values.replicaStore.url) -}}
{{- end -}}
{{- if .Values.artifact.file -}}
{{- $routing := dict "artifact" (printf "/etc/eldr-artifact/%s" .Values.artifact.file) -}}
{{- /* union needs to know the requests of the other gateways, eldr only the centroids, which all have. */ -}}
{{- $several := or .Values.autoscaling.enabled (gt (int .Values.replicas) 1) -}}
{{- $shared := or .Values.replicaStore.url .Values.replicaStore.existingSecret -}}
{{- if and $several (not $shared) (not (dig "routing" "policy" "" .Values.config)) -}}
{{- $_ := set $routing "policy" "eldr" -}}
{{- end -}}
{{- $_ := set $own "routing" $routing -}}
{{- end -}}
{{- toYaml (mustMergeOverwrite (deepCopy .Values.config) $own) -}}
{{- end -}}

{{- define "eldr.scheme" -}}
{{- if .Values.tls.secretName }}HTTPS{{ else }}HTTP{{ end -}}
{{- end -}}
