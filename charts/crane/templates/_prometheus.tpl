{{/*
Copyright The Crane Authors.
SPDX-License-Identifier: Apache-2.0
*/}}

{{/*
crane.prometheus.discover returns the URL of the first Service that files/prometheus-servers.yaml describes, in the order of that file, then
by namespace and name, as `crane doctor` does. Services cannot be read by `helm template`.
*/}}
{{- define "crane.prometheus.discover" -}}
{{- $services := dict }}
{{- range (lookup "v1" "Service" "" "").items }}
{{- if and .spec.ports (ne .spec.type "ExternalName") }}{{ $_ := set $services (printf "%s/%s" .metadata.namespace .metadata.name) . }}{{ end }}
{{- end }}
{{- $url := "" }}
{{- range $server := fromYamlArray (.Files.Get "files/prometheus-servers.yaml") }}
{{- range $key := keys $services | sortAlpha }}
{{- if not $url }}
{{- $service := index $services $key }}{{ $labels := default (dict) $service.metadata.labels }}
{{- $matches := or (not $server.names) (has $service.metadata.name $server.names) }}
{{- range $name, $value := $server.labels }}{{ if ne (get $labels $name) $value }}{{ $matches = false }}{{ end }}{{ end }}
{{- if $matches }}{{ $url = include "crane.prometheus.serviceURL" (list $server $service) }}{{ end }}
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

{{- define "crane.prometheus.url" -}}
{{- $url := default (include "crane.prometheus.discover" .) .Values.prometheus.url }}
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
