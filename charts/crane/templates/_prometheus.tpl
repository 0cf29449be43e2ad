{{/*
Copyright The Crane Authors.
SPDX-License-Identifier: Apache-2.0
*/}}

{{/*
crane.prometheus.monitoring returns the namespaces with a ServiceAccount that a ClusterRoleBinding lets read the metrics of all nodes, as a JSON
object. Only administrators create ClusterRoleBindings, whereas the labels of a Service prove nothing about who created it.
*/}}
{{- define "crane.prometheus.monitoring" -}}
{{- $roles := dict }}{{ $namespaces := dict }}
{{- range $role := (lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" "").items }}
{{- range .rules }}
{{- $reads := and (or (has "get" .verbs) (has "*" .verbs)) (or (has "" .apiGroups) (has "*" .apiGroups)) (not .resourceNames) }}
{{- if and $reads (or (has "nodes/metrics" .resources) (has "nodes/proxy" .resources) (has "*" .resources)) }}{{ $_ := set $roles $role.metadata.name true }}{{ end }}
{{- end }}
{{- end }}
{{- range (lookup "rbac.authorization.k8s.io/v1" "ClusterRoleBinding" "" "").items }}
{{- if hasKey $roles .roleRef.name }}
{{- range .subjects }}{{ if eq .kind "ServiceAccount" }}{{ $_ := set $namespaces .namespace true }}{{ end }}{{ end }}
{{- end }}
{{- end }}
{{- toJson $namespaces }}
{{- end }}

{{/*
crane.prometheus.discover returns the URL of the first Service that files/prometheus-servers.yaml describes, in the order of that file, then
by namespace and name, as `crane doctor` does. It fails if the Services are in several namespaces, or in none for monitoring. Services cannot be
read by `helm template`.
*/}}
{{- define "crane.prometheus.discover" -}}
{{- $services := dict }}
{{- range (lookup "v1" "Service" "" "").items }}
{{- if and .spec.ports (ne .spec.type "ExternalName") }}{{ $_ := set $services (printf "%s/%s" .metadata.namespace .metadata.name) . }}{{ end }}
{{- end }}
{{- $monitoring := dict }}{{ if $services }}{{ $monitoring = fromJson (include "crane.prometheus.monitoring" .) }}{{ end }}
{{- $url := "" }}{{ $proven := list }}{{ $unproven := list }}{{ $namespaces := dict }}
{{- range $server := fromYamlArray (.Files.Get "files/prometheus-servers.yaml") }}
{{- range $key := keys $services | sortAlpha }}
{{- $service := index $services $key }}{{ $labels := default (dict) $service.metadata.labels }}
{{- $matches := or (not $server.names) (has $service.metadata.name $server.names) }}
{{- range $name, $value := $server.labels }}{{ if ne (get $labels $name) $value }}{{ $matches = false }}{{ end }}{{ end }}
{{- if and $matches (hasKey $monitoring $service.metadata.namespace) }}
{{- $proven = append $proven $key }}{{ $_ := set $namespaces $service.metadata.namespace true }}
{{- if not $url }}{{ $url = include "crane.prometheus.serviceURL" (list $server $service) }}{{ end }}
{{- else if $matches }}{{ $unproven = append $unproven $key }}
{{- end }}
{{- end }}
{{- end }}
{{- if gt (len $namespaces) 1 }}
{{- fail (printf "prometheus.url: set the URL of Prometheus; several namespaces have a Service of a known server: %s" (join ", " (uniq $proven))) }}
{{- end }}
{{- if and $unproven (not $proven) }}
{{- fail (printf "prometheus.url: set the URL of Prometheus; these Services may be of users of their namespaces, because no ClusterRoleBinding lets a ServiceAccount there read the metrics of nodes: %s" (join ", " (uniq $unproven))) }}
{{- end }}
{{- $url }}
{{- end }}

{{/* crane.prometheus.installed returns the address of Prometheus that the release uses before an upgrade; empty without one. */}}
{{- define "crane.prometheus.installed" -}}
{{- $root := . }}{{ $url := "" }}
{{- if .Release.IsUpgrade }}
{{- range $name := list "craned" "metric-adapter" "crane-dashboard" }}
{{- $deployment := lookup "apps/v1" "Deployment" $root.Release.Namespace $name }}
{{- if and $deployment (not $url) }}
{{- range $arg := (first $deployment.spec.template.spec.containers).args }}
{{- if or (hasPrefix "--prometheus-address=" $arg) (hasPrefix "--prometheus=" $arg) }}{{ $url = $arg | trimPrefix "--prometheus-address=" | trimPrefix "--prometheus=" }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- $url }}
{{- end }}

{{- define "crane.prometheus.serviceURL" -}}
{{- $server := index . 0 }}{{ $service := index . 1 }}
{{- $port := first $service.spec.ports }}{{ $found := false }}
{{- range $name := $server.ports }}
{{- range $service.spec.ports }}
{{- if and (not $found) (eq (default "" .name) $name) }}{{ $port = . }}{{ $found = true }}{{ end }}
{{- end }}
{{- end }}
{{- $name := default "" $port.name }}
{{- $tls := or (eq $name "https") (hasPrefix "https-" $name) (eq (int $port.port) 443) (eq (lower (default "" $port.appProtocol)) "https") }}
{{- printf "%s://%s.%s.svc:%d%s" (ternary "https" "http" $tls) $service.metadata.name $service.metadata.namespace (int $port.port) (default "" $server.path) }}
{{- end }}

{{/* A Service that appears later does not replace the installed address, and credentials go to an address that the operator names. */}}
{{- define "crane.prometheus.url" -}}
{{- $p := .Values.prometheus }}{{ $url := $p.url }}
{{- if and (not $url) (or $p.bearerToken.secret $p.basicAuth.secret $p.tls.clientSecret $p.headersSecret.secret $p.headers) }}
{{- fail "prometheus.url: set the URL of Prometheus; credentials and headers are not sent to a server that was discovered" }}
{{- end }}
{{- if not $url }}{{ $url = include "crane.prometheus.installed" . }}{{ end }}
{{- if not $url }}{{ $url = include "crane.prometheus.discover" . }}{{ end }}
{{- required "prometheus.url: set the URL of Prometheus; the cluster has no Service of a known server (`helm template` cannot read Services)" $url }}
{{- end }}

{{/*
crane.prometheus prints the arguments, environment, volumes and volumeMounts for the access to Prometheus as YAML. Arguments: root, flag of
the matchers of each query.
*/}}
{{- define "crane.prometheus" -}}
{{- $root := index . 0 }}{{ $p := $root.Values.prometheus }}
args:
- --prometheus-address={{ include "crane.prometheus.url" $root }}
{{- with $p.extensionLabels }}
{{- $matchers := list }}
{{- range $name := keys . | sortAlpha }}{{ $matchers = append $matchers (printf "%s=%s" $name (get $p.extensionLabels $name)) }}{{ end }}
{{- range $flag := splitList "," (index $ 1) }}
- {{ printf "%s=%s" $flag (join "," $matchers) | quote }}
{{- end }}
{{- end }}
{{- if $p.tls.insecureSkipVerify }}
- --prometheus-insecure-skip-verify=true
{{- end }}
{{- if or $p.tls.ca.secret $p.tls.ca.configMap }}
- --prometheus-ca-file=/etc/prometheus/ca/{{ $p.tls.ca.key }}
{{- end }}
{{- if $p.tls.clientSecret }}
- --prometheus-cert-file=/etc/prometheus/client/tls.crt
- --prometheus-key-file=/etc/prometheus/client/tls.key
{{- end }}
{{- if $p.bearerToken.secret }}
- --prometheus-auth-bearertoken-file=/etc/prometheus/token/{{ $p.bearerToken.key }}
{{- end }}
{{- if $p.basicAuth.secret }}
- --prometheus-auth-username=$(CRANE_PROMETHEUS_USERNAME)
{{- end }}
{{- range $name := keys $p.headers | sortAlpha }}
- {{ printf "--prometheus-header=%s: %s" $name (get $p.headers $name) | quote }}
{{- end }}
{{- if $p.headersSecret.secret }}
- --prometheus-headers-file=/etc/prometheus/headers/{{ $p.headersSecret.key }}
{{- end }}
{{- with $p.basicAuth }}
{{- if .secret }}
env:
- name: CRANE_PROMETHEUS_USERNAME
  valueFrom: {secretKeyRef: {name: {{ .secret }}, key: {{ .usernameKey }}}}
- name: CRANE_PROMETHEUS_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ .secret }}, key: {{ .passwordKey }}}}
{{- end }}
{{- end }}
{{- $volumes := list }}
{{- if $p.tls.ca.secret }}{{ $volumes = append $volumes (dict "name" "prometheus-ca" "secret" (dict "secretName" $p.tls.ca.secret)) }}
{{- else if $p.tls.ca.configMap }}{{ $volumes = append $volumes (dict "name" "prometheus-ca" "configMap" (dict "name" $p.tls.ca.configMap)) }}{{ end }}
{{- with $p.tls.clientSecret }}{{ $volumes = append $volumes (dict "name" "prometheus-client" "secret" (dict "secretName" .)) }}{{ end }}
{{- with $p.bearerToken.secret }}{{ $volumes = append $volumes (dict "name" "prometheus-token" "secret" (dict "secretName" .)) }}{{ end }}
{{- with $p.headersSecret.secret }}{{ $volumes = append $volumes (dict "name" "prometheus-headers" "secret" (dict "secretName" .)) }}{{ end }}
{{- with $volumes }}
volumes:
{{- toYaml . | nindent 0 }}
volumeMounts:
{{- range . }}
- {name: {{ .name }}, mountPath: /etc/prometheus/{{ trimPrefix "prometheus-" .name }}, readOnly: true}
{{- end }}
{{- end }}
{{- end }}
