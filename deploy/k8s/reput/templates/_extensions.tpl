{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/* Where the chart mounts a disk of the log. Called with a disk. */}}
{{- define "reput.diskPath" -}}
/disks/{{ .name }}
{{- end }}

{{/* The directories of the log: that of the data volume, then one on each disk, below its mount point. */}}
{{- define "reput.logDirs" -}}
{{- $found := list "/data/commitlog" -}}
{{- range .logDisks -}}
{{- $found = append $found (printf "%s/log" (include "reput.diskPath" .)) -}}
{{- end -}}
{{- join "," $found -}}
{{- end }}

{{/* Refuse an existing claim where several pods would need it. Called with component and values. */}}
{{- define "reput.checkClaims" -}}
{{- $component := .component -}}
{{- $replicas := int (default 1 .values.replicas) -}}
{{- if gt $replicas 1 -}}
{{- $hint := printf "a claim belongs to a single pod, and there are %d: create a claim for each pod under the names that README.md lists" $replicas -}}
{{- if (.values.persistence).existingClaim -}}
{{- fail (printf "%s.persistence.existingClaim: %s" $component $hint) -}}
{{- end -}}
{{- range .values.logDisks -}}
{{- if .existingClaim -}}
{{- fail (printf "%s.logDisks: existingClaim of %s: %s" $component .name $hint) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The mounts of a service's files. Called with values. */}}
{{- define "reput.dataMounts" -}}
{{- if .persistence -}}
- name: data
  mountPath: /data
{{ end -}}
{{- range .logDisks -}}
- name: log-{{ .name }}
  mountPath: {{ include "reput.diskPath" . }}
{{ end -}}
{{- end }}

{{/* The volumes of a service's files that are not made from claim templates. Called with values, and claim if there is one. */}}
{{- define "reput.dataVolumes" -}}
{{- $persistence := .values.persistence -}}
{{- if $persistence -}}
{{- include "reput.volume" (dict "name" "data" "persistence" $persistence "claim" (default .claim $persistence.existingClaim)) -}}
{{- range .values.logDisks -}}
{{- include "reput.volume" (dict "name" (printf "log-%s" .name) "persistence" $persistence "claim" .existingClaim) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* A volume in the pod, or on an existing claim; nothing if a claim template makes it. Called with name, persistence, claim. */}}
{{- define "reput.volume" -}}
{{- if not .persistence.enabled }}
- name: {{ .name }}
  emptyDir: {}
{{- else if .claim }}
- name: {{ .name }}
  persistentVolumeClaim:
    claimName: {{ .claim }}
{{- end }}
{{- end }}

{{/* The claim templates of a StatefulSet. Called with root, component and values. */}}
{{- define "reput.claimTemplates" -}}
{{- $context := . -}}
{{- $persistence := .values.persistence -}}
{{- if ($persistence).enabled -}}
{{- if not $persistence.existingClaim -}}
{{- include "reput.claimTemplate" (merge (dict "name" "data" "claim" $persistence) $context) -}}
{{- end -}}
{{- range .values.logDisks -}}
{{- if not .existingClaim -}}
{{- $claim := merge (dict) . (omit $persistence "size" "existingClaim" "annotations") -}}
{{- include "reput.claimTemplate" (merge (dict "name" (printf "log-%s" .name) "claim" $claim) $context) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "reput.claimTemplate" }}
- apiVersion: v1
  kind: PersistentVolumeClaim
  metadata:
    name: {{ .name }}
    labels:
      {{- include "reput.selectorLabels" . | nindent 6 }}
    {{- with .claim.annotations }}
    annotations:
      {{- toYaml . | nindent 6 }}
    {{- end }}
  spec:
    {{- include "reput.claimSpec" .claim | nindent 4 }}
{{- end }}
