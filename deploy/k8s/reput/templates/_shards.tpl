{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/* Not empty for a service that reads the file of the shards. Called with root and component. */}}
{{- define "reput.readsShards" -}}
{{- if and .root.Values.shards (has .component (list "gateway" "delivery" "console")) -}}
true
{{- end -}}
{{- end }}

{{/* The addresses of a shard by service. Those of a release are as that release itself would call them. Called with root and shard. */}}
{{- define "reput.shardTargets" -}}
{{- $found := pick .shard "commitlog" "indexer" "delivery" "janitor" -}}
{{- if .shard.release -}}
{{- $values := dict "nameOverride" .root.Values.nameOverride "commitlog" (dict "replicas" (default 1 .shard.replicas)) -}}
{{- $release := dict "Name" .shard.release "Namespace" (default .root.Release.Namespace .shard.namespace) -}}
{{- $there := dict "Chart" .root.Chart "Values" $values "Release" $release -}}
{{- range $service := list "commitlog" "indexer" "delivery" "janitor" -}}
{{- $_ := set $found $service (include "reput.clientTarget" (dict "root" $there "component" $service)) -}}
{{- end -}}
{{- end -}}
{{- $found | toJson -}}
{{- end }}

{{/* The file of the shards, in the order of their names. */}}
{{- define "reput.shardsFile" -}}
# The shards of a store. docs/scale.md
{{- range $name, $shard := .Values.shards }}

[shards.{{ $name }}]
{{- range $service, $target := include "reput.shardTargets" (dict "root" $ "shard" $shard) | fromJson }}
{{ $service }} = {{ $target | quote }}
{{- end }}
{{- if not (dig "takesTopics" true $shard) }}
takes_topics = false
{{- end }}
{{- end }}
{{ end }}

{{/* Refuse shards that share a service, that take no topics, or that name this release otherwise than it is. */}}
{{- define "reput.checkShards" -}}
{{- $seen := dict -}}
{{- $takesTopics := false -}}
{{- range $name, $shard := .Values.shards -}}
{{- if dig "takesTopics" true $shard -}}
{{- $takesTopics = true -}}
{{- end -}}
{{- range $service, $targets := include "reput.shardTargets" (dict "root" $ "shard" $shard) | fromJson -}}
{{- range $target := splitList "," $targets -}}
{{- if hasKey $seen $target -}}
{{- fail (printf "shards: %s and %s both have %s" (get $seen $target) $name $target) -}}
{{- end -}}
{{- $_ := set $seen $target $name -}}
{{- end -}}
{{- end -}}
{{- if and (eq (default "" $shard.release) $.Release.Name) (eq (default $.Release.Namespace $shard.namespace) $.Release.Namespace) -}}
{{- include "reput.checkOwnShard" (dict "root" $ "name" $name "shard" $shard) -}}
{{- end -}}
{{- end -}}
{{- if not $takesTopics -}}
{{- fail "shards: no shard takes topics (takesTopics)" -}}
{{- end -}}
{{- end }}

{{/* Refuse a shard that is this release and has other addresses than its Services. Called with root, name and shard. */}}
{{- define "reput.checkOwnShard" -}}
{{- if not (include "reput.hasStore" .root) -}}
{{- fail (printf "shards.%s: release %s has no store (store.enabled)" .name .shard.release) -}}
{{- end -}}
{{- $own := include "reput.clientTarget" (dict "root" .root "component" "commitlog") -}}
{{- $said := (include "reput.shardTargets" (dict "root" .root "shard" .shard) | fromJson).commitlog -}}
{{- if ne $own $said -}}
{{- fail (printf "shards.%s: replicas must be commitlog.replicas of release %s, and with fullnameOverride give the addresses: its CommitLog is %s, not %s" .name .shard.release $own $said) -}}
{{- end -}}
{{- end }}

{{/* The pods of some services in the namespaces of all shards, as a NetworkPolicyPeer. Called with root and components. */}}
{{- define "reput.shardPeer" -}}
{{- $namespaces := list .root.Release.Namespace -}}
{{- range $name, $shard := .root.Values.shards -}}
{{- $namespaces = append $namespaces (default $.root.Release.Namespace $shard.namespace) -}}
{{- end -}}
- namespaceSelector:
    matchExpressions:
      - key: kubernetes.io/metadata.name
        operator: In
        values: {{ $namespaces | uniq | sortAlpha | toJson }}
  podSelector:
    matchLabels:
      app.kubernetes.io/part-of: reput
    matchExpressions:
      - key: app.kubernetes.io/component
        operator: In
        values: {{ .components | toJson }}
{{- end }}
