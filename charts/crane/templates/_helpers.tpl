{{/*
Copyright The Crane Authors.
SPDX-License-Identifier: Apache-2.0

The manifests are those of config/ (files/config), the one source for the chart and for kustomize. The templates select
files by component, put the namespace of the release into them, and change what values say.
*/}}

{{- define "crane.labels" -}}
app.kubernetes.io/part-of: crane
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* crane.metadata renders the labels and annotations of an object that only the chart has. */}}
{{- define "crane.metadata" -}}
labels:
  {{- include "crane.labels" . | nindent 2 }}
{{- with .Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* crane.agentNamespace returns the namespace of crane-agent, which may be in another release. */}}
{{- define "crane.agentNamespace" -}}
{{- $namespace := default .Release.Namespace .Values.craneAgent.namespace }}
{{- if and .Values.craneAgent.enabled (ne $namespace .Release.Namespace) }}
{{- fail "craneAgent.namespace: the agents of this release are in its own namespace; set craneAgent.enabled=false if another release has them" }}
{{- end }}
{{- $namespace }}
{{- end }}

{{/* crane.cranedNamespace returns the namespace of craned, which may be in another release. */}}
{{- define "crane.cranedNamespace" -}}
{{- $namespace := default .Release.Namespace .Values.craned.namespace }}
{{- if and .Values.craned.enabled (ne $namespace .Release.Namespace) }}
{{- fail "craned.namespace: craned of this release is in its own namespace; set craned.enabled=false if another release has it" }}
{{- end }}
{{- $namespace }}
{{- end }}

{{/*
crane.evictionsGuarded is not empty if craned of this release, or of another one that craned.namespace names, checks that agents evict pods of their
own node alone.
*/}}
{{- define "crane.evictionsGuarded" -}}
{{- if ternary .Values.craned.webhooks.enabled (not (empty .Values.craned.namespace)) .Values.craned.enabled }}yes{{ end }}
{{- end }}

{{/*
crane.file returns the text of a file of config/ with the namespace of the release, and that of the agents in their user name and in the lists of
namespaces that Crane does not change. Arguments: root, path.
*/}}
{{- define "crane.file" -}}
{{- $root := index . 0 }}
{{- $text := $root.Files.Get (printf "files/config/%s" (index . 1)) }}
{{- if not $text }}{{ fail (printf "config/%s is not part of the chart" (index . 1)) }}{{ end }}
{{- $agents := include "crane.agentNamespace" $root }}
{{- /* The name of the agents' namespace comes last, because it may contain crane-system. */}}
{{- $text = $text | replace "system:serviceaccount:crane-system:crane-agent" "system:serviceaccount:<agents>:crane-agent" }}
{{- if ne $agents $root.Release.Namespace }}
{{- $text = $text | replace "'crane-system']" "'crane-system', '<agents>']" | replace "crane-system]}" "crane-system, <agents>]}" }}
{{- end }}
{{- $text | replace "crane-system" $root.Release.Namespace | replace "<agents>" $agents }}
{{- end }}

{{/* crane.render prints an object of config/ with the labels and annotations of the release. Arguments: root, object. */}}
{{- define "crane.render" -}}
{{- $root := index . 0 }}{{ $object := index . 1 }}
{{- $labels := merge (fromYaml (include "crane.labels" $root)) (default (dict) $object.metadata.labels) }}
{{- $_ := set $object.metadata "labels" $labels }}
{{- /* Agents use these rights in the namespace of craned. */}}
{{- if and (has $object.kind (list "Role" "RoleBinding")) (has $object.metadata.name (list "crane-agent" "crane-agent-elastic")) }}
{{- $_ := set $object.metadata "namespace" (include "crane.cranedNamespace" $root) }}
{{- end }}
{{- if and (eq $object.kind "ClusterRole") (eq $object.metadata.name "crane-agent") (not (include "crane.evictionsGuarded" $root)) }}
{{- $rules := list }}
{{- range $object.rules }}{{ if not (has "pods/eviction" .resources) }}{{ $rules = append $rules . }}{{ end }}{{ end }}
{{- $_ := set $object "rules" $rules }}
{{- end }}
{{- with $root.Values.commonAnnotations }}
{{- $_ := set $object.metadata "annotations" (merge (deepCopy .) (default (dict) $object.metadata.annotations)) }}
{{- end }}
---
{{ toYaml $object }}
{{- end }}

{{/* crane.objects prints all objects of files of config/. Arguments: root, path... */}}
{{- define "crane.objects" -}}
{{- $root := index . 0 }}
{{- range $path := rest . }}
{{- range $document := regexSplit "(?m)^---$" (include "crane.file" (list $root $path)) -1 }}
{{- include "crane.render" (list $root (fromYaml $document)) }}
{{ end }}
{{- end }}
{{- end }}

{{/* crane.image returns the reference of an image. Arguments: root, values of the component. */}}
{{- define "crane.image" -}}
{{- $root := index . 0 }}{{ $image := (index . 1).image }}
{{- $registry := required "image.registry: set the registry to which Crane's images were pushed" $root.Values.image.registry }}
{{- if $image.digest }}
{{- printf "%s/%s@%s" $registry $image.repository $image.digest }}
{{- else }}
{{- printf "%s/%s:%s" $registry $image.repository (default $root.Chart.AppVersion $root.Values.image.tag) }}
{{- end }}
{{- end }}

{{/*
crane.workload prints a Deployment or DaemonSet of config/ as values say. Arguments, as a dictionary: root, path, values (of the component),
args and env (replace those with the same name of config/), drop (names of arguments to leave out), volumes, volumeMounts, podAnnotations.
*/}}
{{- define "crane.workload" -}}
{{- $root := .root }}{{ $values := .values }}
{{- $object := fromYaml (include "crane.file" (list $root .path)) }}
{{- $template := $object.spec.template }}{{ $pod := $template.spec }}{{ $container := first $pod.containers }}
{{- if hasKey $values "replicas" }}{{ $_ := set $object.spec "replicas" $values.replicas }}{{ end }}
{{- if hasKey $values "maxUnavailable" }}{{ $_ := set $object.spec.updateStrategy.rollingUpdate "maxUnavailable" $values.maxUnavailable }}{{ end }}
{{- $_ := set $container "image" (include "crane.image" (list $root $values)) }}
{{- $_ := set $container "imagePullPolicy" $root.Values.image.pullPolicy }}
{{- $replaced := default (list) .drop }}
{{- range default (list) .args }}{{ $replaced = append $replaced (first (splitList "=" .)) }}{{ end }}
{{- $args := list }}
{{- range $container.args }}
{{- if not (has (first (splitList "=" .)) $replaced) }}{{ $args = append $args . }}{{ end }}
{{- end }}
{{- $_ := set $container "args" (concat $args (default (list) .args) $values.extraArgs) }}
{{- $variables := list }}
{{- range default (list) .env }}{{ $variables = append $variables .name }}{{ end }}
{{- $env := list }}
{{- range default (list) $container.env }}{{ if not (has .name $variables) }}{{ $env = append $env . }}{{ end }}{{ end }}
{{- with concat $env (default (list) .env) $values.extraEnv }}{{ $_ := set $container "env" . }}{{ end }}
{{- with concat (default (list) $container.volumeMounts) (default (list) .volumeMounts) $values.extraVolumeMounts }}{{ $_ := set $container "volumeMounts" . }}{{ end }}
{{- $given := concat (default (list) .volumes) $values.extraVolumes }}
{{- $names := list }}
{{- range $given }}{{ $names = append $names .name }}{{ end }}
{{- $volumes := list }}
{{- range $pod.volumes }}{{ if not (has .name $names) }}{{ $volumes = append $volumes . }}{{ end }}{{ end }}
{{- with concat $volumes $given }}{{ $_ := set $pod "volumes" . }}{{ end }}
{{- $_ := set $container "resources" $values.resources }}
{{- $_ := set $pod "containers" (concat (list $container) $values.extraContainers) }}
{{- with $root.Values.image.pullSecrets }}
{{- $secrets := list }}
{{- range . }}{{ $secrets = append $secrets (dict "name" .) }}{{ end }}
{{- $_ := set $pod "imagePullSecrets" $secrets }}
{{- end }}
{{- range $name := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "priorityClassName" }}
{{- with index $values $name }}{{ $_ := set $pod $name . }}{{ end }}
{{- end }}
{{- with merge (deepCopy $values.podAnnotations) (default (dict) .podAnnotations) }}{{ $_ := set $template.metadata "annotations" . }}{{ end }}
{{- $_ := set $template.metadata "labels" (merge (dict) $template.metadata.labels $values.podLabels) }}
{{- if and $root.Values.openshift.enabled (ne $object.kind "DaemonSet") }}{{ $_ := unset $pod.securityContext "runAsUser" }}{{ end }}
{{- include "crane.render" (list $root $object) }}
{{ end }}

{{/* crane.account prints the objects of an RBAC file, with the annotations of its ServiceAccount. Arguments: root, path, values. */}}
{{- define "crane.account" -}}
{{- $root := index . 0 }}{{ $values := index . 2 }}
{{- range $document := regexSplit "(?m)^---$" (include "crane.file" (list $root (index . 1))) -1 }}
{{- $object := fromYaml $document }}
{{- if and (eq $object.kind "ServiceAccount") $values.serviceAccountAnnotations }}
{{- $_ := set $object.metadata "annotations" (deepCopy $values.serviceAccountAnnotations) }}
{{- end }}
{{- include "crane.render" (list $root $object) }}
{{ end }}
{{- end }}

{{/*
crane.schedulerCertificate is not empty if cert-manager issues the certificate of crane-scheduler. In place of the cluster's scheduler it must not wait
for cert-manager, whose pods it places.
*/}}
{{- define "crane.schedulerCertificate" -}}
{{- if and .Values.certManager.enabled .Values.craneScheduler.enabled (not .Values.craneScheduler.replaceKubeScheduler) }}yes{{ end }}
{{- end }}

{{/* crane.monitors is not empty if objects of the Prometheus operator are rendered. Arguments: root, setting (auto, true or false), kind. */}}
{{- define "crane.monitors" -}}
{{- $root := index . 0 }}{{ $setting := toString (index . 1) }}
{{- if or (eq $setting "true") (and (eq $setting "auto") ($root.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" (index . 2)))) }}yes{{ end }}
{{- end }}

{{/* crane.monitorMetadata renders the labels and annotations of an object of the Prometheus operator. */}}
{{- define "crane.monitorMetadata" -}}
labels:
  {{- include "crane.labels" . | nindent 2 }}
  {{- with .Values.monitoring.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
