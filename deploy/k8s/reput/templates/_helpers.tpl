{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{- define "reput.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/* At most 40 characters, so that "-commitlog-headless" and a pod's ordinal still fit into a DNS label. */}}
{{- define "reput.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "reput.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "reput.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "reput.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "reput.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{/* Labels that never change between versions: selectors and volume claim templates are immutable. */}}
{{- define "reput.selectorLabels" -}}
app.kubernetes.io/name: {{ include "reput.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{- define "reput.labels" -}}
{{ include "reput.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: reput
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "reput.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default .Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end }}

{{- define "reput.ports" -}}
{{- dict "commitlog" (dict "grpc" 7101 "metrics" 7201) "indexer" (dict "grpc" 7102 "metrics" 7202) "janitor" (dict "grpc" 7103 "metrics" 7203) "delivery" (dict "grpc" 7104 "metrics" 7204) "gateway" (dict "grpc" 8081 "metrics" 7205) "console" (dict "http" 7300 "metrics" 7206) | toJson -}}
{{- end }}

{{/* The name and the number of a service's port: gRPC, and pages of a console. Called with component. */}}
{{- define "reput.portName" -}}
{{- ternary "http" "grpc" (eq .component "console") -}}
{{- end }}

{{- define "reput.port" -}}
{{- index (include "reput.ports" . | fromJson) .component (include "reput.portName" .) -}}
{{- end }}

{{/* The services that each service calls. */}}
{{- define "reput.peers" -}}
{{- dict "commitlog" (list) "indexer" (list "commitlog") "janitor" (list "commitlog" "indexer") "delivery" (list "commitlog" "indexer") "gateway" (list "commitlog" "indexer" "janitor" "delivery") "console" (list "commitlog" "indexer" "janitor" "delivery") | toJson -}}
{{- end }}

{{/* The name that other pods call, with the namespace: a certificate can carry it, and search domains are not needed. */}}
{{- define "reput.target" -}}
{{- $port := index (include "reput.ports" .root | fromJson) .component "grpc" -}}
{{- printf "%s-%s.%s.svc:%d" (include "reput.fullname" .root) .component .root.Release.Namespace (int $port) -}}
{{- end }}

{{/* The number of logs; several logs are copies that elect a leader. */}}
{{- define "reput.replicas" -}}
{{- int .Values.commitlog.replicas -}}
{{- end }}

{{/* Not empty if the log is replicated. */}}
{{- define "reput.isReplicated" -}}
{{- if and (gt (int .Values.commitlog.replicas) 1) (include "reput.hasStore" .) -}}
true
{{- end -}}
{{- end }}

{{/* The address of a pod of a StatefulSet. Called with root, component, and pod: its ordinal or an expression for it. */}}
{{- define "reput.podTarget" -}}
{{- $fullname := printf "%s-%s" (include "reput.fullname" .root) .component -}}
{{- $port := index (include "reput.ports" .root | fromJson) .component "grpc" -}}
{{- printf "%s-%v.%s-headless.%s.svc:%d" $fullname .pod $fullname .root.Release.Namespace (int $port) -}}
{{- end }}

{{/* The address of a service for clients: its Service, or all its pods if they differ. */}}
{{- define "reput.clientTarget" -}}
{{- if and (include "reput.isReplicated" .root) (ne .component "gateway") -}}
{{- $targets := list -}}
{{- range $pod := until (int (include "reput.replicas" .root)) -}}
{{- $targets = append $targets (include "reput.podTarget" (merge (dict "pod" $pod) $)) -}}
{{- end -}}
{{- join "," $targets -}}
{{- else -}}
{{- include "reput.target" . -}}
{{- end -}}
{{- end }}

{{/* The Lease that names the leader. */}}
{{- define "reput.leaseName" -}}
{{- printf "%s-commitlog" (include "reput.fullname" .) -}}
{{- end }}

{{/* Not empty unless the release is gateways alone. Values of an older chart don't say it. */}}
{{- define "reput.hasStore" -}}
{{- if dig "enabled" true (default dict .Values.store) -}}
true
{{- end -}}
{{- end }}

{{/* The services of this release. Values of an older chart have no Delivery, no gateway and no console. */}}
{{- define "reput.components" -}}
{{- $found := ternary (list "commitlog" "indexer") list (not (empty (include "reput.hasStore" .))) -}}
{{- range $component := list "janitor" "delivery" "gateway" "console" -}}
{{- if and (index $.Values $component).enabled (or $found (eq $component "gateway")) -}}
{{- $found = append $found $component -}}
{{- end -}}
{{- end -}}
{{- $found | toJson -}}
{{- end }}

{{/* Not empty if the release has this service. Called with root and component. */}}
{{- define "reput.has" -}}
{{- if has .component (include "reput.components" .root | fromJsonArray) -}}
true
{{- end -}}
{{- end }}

{{/* Not empty for a service whose pod i belongs to log i. A gateway uses the leader. */}}
{{- define "reput.isNumbered" -}}
{{- if and (include "reput.isReplicated" .root) (not (has .component (list "commitlog" "gateway" "console"))) -}}
true
{{- end -}}
{{- end }}

{{/* The command of a service's pod, where it depends on the pod's number. */}}
{{- define "reput.numberedCommand" -}}
{{- $root := .root -}}
number=${HOSTNAME##*-}
{{- range $peer := index (include "reput.peers" . | fromJson) .component }}
{{- $target := include "reput.podTarget" (dict "root" $root "component" $peer "pod" "$number") }}
export REPUT_{{ upper $.component }}_{{ upper $peer }}_TARGET="{{ $target }}"
{{- end }}
exec reput serve {{ .component }}
{{- end }}

{{/* A setting in the form of the environment. Helm reads every number as a float and would print 1073741824 as 1.073741824e+09. */}}
{{- define "reput.setting" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- int64 . -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end }}

{{/* The longest orderly stop: streams end, calls end, the store is synced; then ten seconds more. */}}
{{- define "reput.gracePeriodSeconds" -}}
{{- add (mul 2 (div (add (int64 .drainTimeoutMs) 999) 1000)) 60 10 -}}
{{- end }}

{{/* Kubernetes' own gRPC probe knows neither TLS nor client certificates: with TLS the probe uses the pod's Unix socket. */}}
{{- define "reput.probe" -}}
{{- if eq .component "console" -}}
httpGet:
  path: /healthz
  port: http
  scheme: {{ ternary "HTTPS" "HTTP" .root.Values.tls.enabled }}
  httpHeaders:
    # the kubelet would name the pod's address, which is no name of a console
    - {name: Host, value: localhost}
{{- else if .root.Values.tls.enabled -}}
exec:
  command: [reput-probe, "unix:/run/reput/{{ .component }}.sock"]
{{- else -}}
grpc:
  port: {{ index (include "reput.ports" .root | fromJson) .component "grpc" }}
{{- end }}
{{- end }}

{{/* Environment of a service, the same for all pods of it. Called with root, component and values. */}}
{{- define "reput.environment" -}}
{{- $root := .root -}}
{{- $settings := dict "listen_host" "0.0.0.0" "metrics_host" "0.0.0.0" "log_format" "json" "drain_timeout_ms" .values.drainTimeoutMs -}}
{{- if .values.persistence -}}
{{- $_ := set $settings "data_dir" "/data" -}}
{{- end -}}
{{- if and .values.logDisks (not .values.config.log_dirs) -}}
{{- $_ := set $settings "log_dirs" (include "reput.logDirs" .values) -}}
{{- end -}}
{{- if $root.Values.tls.enabled -}}
{{- $_ := set $settings "tls_certificate_file" "/etc/reput/tls/tls.crt" -}}
{{- $_ := set $settings "tls_key_file" "/etc/reput/tls/tls.key" -}}
{{- $_ := set $settings "unix_socket" (printf "/run/reput/%s.sock" .component) -}}
{{- /* RocketMQ's clients have neither certificates nor tokens */ -}}
{{- if and $root.Values.tls.clientCertificates (ne .component "gateway") -}}
{{- $_ := set $settings "tls_client_ca_file" "/etc/reput/tls/ca.crt" -}}
{{- end -}}
{{- else -}}
{{- $_ := set $settings "allow_insecure" true -}}
{{- end -}}
{{- if eq .component "gateway" -}}
{{- if .values.accessKeys.secretName -}}
{{- $_ := set $settings "access_keys_file" "/etc/reput/access/keys" -}}
{{- end -}}
{{- else if $root.Values.token.secretName -}}
{{- $_ := set $settings "token_file" "/etc/reput/token/token" -}}
{{- end -}}
{{- $target := ternary "reput.clientTarget" "reput.target" (eq .component "gateway") -}}
{{- $peers := index (include "reput.peers" . | fromJson) .component -}}
{{- if and (eq .component "commitlog") (include "reput.isReplicated" $root) -}}
{{- $_ := set $settings "role" (default "sync_master" .values.config.role) -}}
{{- $_ := set $settings "coordinator" "kubernetes" -}}
{{- $_ := set $settings "kubernetes_lease" (include "reput.leaseName" $root) -}}
{{- $_ := set $settings "kubernetes_namespace" $root.Release.Namespace -}}
{{- $_ := set $settings "bootstrap_replica_id" (printf "%s-commitlog-0" (include "reput.fullname" $root)) -}}
{{- $peers = list "leader" -}}
{{- end -}}
{{- if or $root.Values.rights.secretName $root.Values.rights.configMapName -}}
{{- $_ := set $settings "rights_file" (printf "/etc/reput/rights/%s" $root.Values.rights.key) -}}
{{- end -}}
{{- $_ := set $settings "service_token_file" "/etc/reput/trust/service" -}}
{{- $_ := set $settings "operator_token_file" "/etc/reput/trust/operator" -}}
{{- if include "reput.readsShards" . -}}
{{- $_ := set $settings "shards_file" "/etc/reput/shards/shards.toml" -}}
{{- end -}}
{{- range $peer := $peers -}}
{{- if and (eq $.component "gateway") $root.Values.shards -}}
{{- /* the file has its addresses */ -}}
{{- else if and (eq $peer "janitor") (not $root.Values.janitor.enabled) (eq $.component "gateway") -}}
{{- $_ := set $settings "janitor_target" "" -}}
{{- else if ne $peer "leader" -}}
{{- $_ := set $settings (printf "%s_target" $peer) (include $target (dict "root" $root "component" $peer)) -}}
{{- end -}}
{{- if $root.Values.tls.enabled -}}
{{- $_ := set $settings (printf "%s_tls_ca_file" $peer) "/etc/reput/tls/ca.crt" -}}
{{- if $root.Values.tls.clientCertificates -}}
{{- $_ := set $settings (printf "%s_tls_certificate_file" $peer) "/etc/reput/tls/tls.crt" -}}
{{- $_ := set $settings (printf "%s_tls_key_file" $peer) "/etc/reput/tls/tls.key" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- include "reput.variables" (dict "component" .component "settings" (merge $settings .values.config)) -}}
{{- end }}

{{/* Settings as variables of the environment. Called with component and settings. */}}
{{- define "reput.variables" -}}
{{- $prefix := printf "REPUT_%s_" (upper .component) -}}
{{- $lines := list -}}
{{- range $name, $value := .settings -}}
{{- $lines = append $lines (printf "%s%s: %s" $prefix (upper $name) (include "reput.setting" $value | quote)) -}}
{{- end -}}
{{- join "\n" $lines -}}
{{- end }}

{{/* The addresses of the services for the `reput` command in a pod. Called with root and, in a service's pod, component. */}}
{{- define "reput.clients" -}}
{{- $isPlain := not (or .root.Values.tls.enabled (include "reput.isReplicated" .root)) -}}
{{- range $service := without (include "reput.components" .root | fromJsonArray) "console" }}
{{- if and $isPlain (eq $service (default "" $.component)) }}
{{- /* with several Indexers, the pod's own Indexer */}}
REPUT_CLIENT_{{ upper $service }}_TARGET: {{ printf "127.0.0.1:%v" (index (include "reput.ports" $.root | fromJson) $service "grpc") | quote }}
{{- else }}
REPUT_CLIENT_{{ upper $service }}_TARGET: {{ include "reput.clientTarget" (dict "root" $.root "component" $service) | quote }}
{{- end }}
{{- end }}
{{- if .root.Values.tls.enabled }}
REPUT_CLIENT_CA_FILE: /etc/reput/tls/ca.crt
{{- if .root.Values.tls.clientCertificates }}
REPUT_CLIENT_CERTIFICATE_FILE: /etc/reput/tls/tls.crt
REPUT_CLIENT_KEY_FILE: /etc/reput/tls/tls.key
{{- end }}
{{- end }}
{{- if include "reput.readsShards" (merge (dict "component" (default "gateway" .component)) .) }}
REPUT_CLIENT_SHARDS_FILE: /etc/reput/shards/shards.toml
{{- end }}
{{- if .component }}
REPUT_CLIENT_TOKEN_FILE: /etc/reput/trust/operator
{{- else if .root.Values.token.secretName }}
REPUT_CLIENT_TOKEN_FILE: /etc/reput/token/token
{{- end }}
{{- end }}

{{/* The Secret with the tokens of services and operators. */}}
{{- define "reput.trustSecretName" -}}
{{- (.Values.trust).secretName | default (printf "%s-trust" (include "reput.fullname" .)) -}}
{{- end }}

{{/* The mounts of certificate and token. The whole Secret is mounted, never a part by subPath, so that renewals arrive. Called with root and,
in a service's pod, component: a console has no rights file. */}}
{{- define "reput.secretMounts" -}}
{{- if .root.Values.tls.enabled -}}
- name: tls
  mountPath: /etc/reput/tls
  readOnly: true
{{ end -}}
{{- if .root.Values.token.secretName -}}
- name: token
  mountPath: /etc/reput/token
  readOnly: true
{{ end -}}
{{- if and (ne (default "" .component) "console") (or .root.Values.rights.secretName .root.Values.rights.configMapName) -}}
- name: rights
  mountPath: /etc/reput/rights
  readOnly: true
{{ end -}}
{{- end }}

{{- define "reput.secretVolumes" -}}
{{- if .root.Values.tls.enabled -}}
- name: tls
  secret:
    secretName: {{ .root.Values.tls.secretName }}
    defaultMode: 0440
{{ end -}}
{{- if .root.Values.token.secretName -}}
- name: token
  secret:
    secretName: {{ .root.Values.token.secretName }}
    defaultMode: 0440
    items:
      - key: {{ .root.Values.token.key }}
        path: token
{{ end -}}
{{- if eq (default "" .component) "console" -}}
{{- else if .root.Values.rights.secretName -}}
- name: rights
  secret:
    secretName: {{ .root.Values.rights.secretName }}
    defaultMode: 0440
{{ else if .root.Values.rights.configMapName -}}
- name: rights
  configMap:
    name: {{ .root.Values.rights.configMapName }}
{{ end -}}
{{- end }}

{{/* The content of `template:` of a workload. Called with root, component, values, and claim: the claim's name, if it has one. */}}
{{- define "reput.podTemplate" -}}
{{- $root := .root -}}
{{- $values := .values -}}
{{- $component := .component -}}
{{- $ports := index (include "reput.ports" $root | fromJson) $component -}}
metadata:
  # No version here: a new chart with the same settings and the same image restarts nothing.
  labels:
    {{- include "reput.selectorLabels" . | nindent 4 }}
    app.kubernetes.io/part-of: reput
    {{- with $values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    checksum/environment: {{ include (ternary "reput.consoleEnvironment" "reput.environment" (eq $component "console")) . | sha256sum }}
    {{- if include "reput.readsShards" . }}
    checksum/shards: {{ include "reput.shardsFile" $root | sha256sum }}
    {{- end }}
    {{- with $values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "reput.serviceAccountName" $root }}
  {{- if and (eq $component "commitlog") (include "reput.isReplicated" $root) }}
  # for the Lease that names the leader
  automountServiceAccountToken: true
  {{- else }}
  automountServiceAccountToken: false
  {{- end }}
  # The variables that Kubernetes makes for each Service (REPUT_COMMITLOG_PORT=tcp://...) would be read as settings.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "reput.gracePeriodSeconds" $values }}
  {{- with $root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  securityContext:
    {{- toYaml $root.Values.podSecurityContext | nindent 4 }}
  containers:
    - name: {{ $component }}
      image: {{ include "reput.image" $root | quote }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      {{- if $values.maintenance }}
      command: [sleep, infinity]
      {{- else if include "reput.isNumbered" . }}
      # Each belongs to the log of its number. The leader's Delivery delivers.
      command:
        - sh
        - -c
        - |
          {{- include "reput.numberedCommand" . | nindent 10 }}
      {{- else }}
      args: [serve, {{ $component }}]
      {{- end }}
      {{- $isMember := and (eq $component "commitlog") (include "reput.isReplicated" $root) }}
      {{- $hasHost := and (eq $component "commitlog") (not $values.config.store_host) }}
      {{- if or $isMember $hasHost $values.extraEnv }}
      env:
        {{- if $hasHost }}
        - name: POD_IP
          valueFrom:
            fieldRef:
              fieldPath: status.podIP
        - name: REPUT_COMMITLOG_STORE_HOST
          value: "$(POD_IP):7101"
        {{- end }}
        {{- if $isMember }}
        - name: REPUT_COMMITLOG_REPLICA_ID
          valueFrom:
            fieldRef:
              fieldPath: metadata.name
        - name: REPUT_COMMITLOG_KUBERNETES_POD
          value: "$(REPUT_COMMITLOG_REPLICA_ID)"
        - name: REPUT_COMMITLOG_ADVERTISE_TARGET
          value: "$(REPUT_COMMITLOG_REPLICA_ID).{{ include "reput.fullname" $root }}-commitlog-headless.{{ $root.Release.Namespace }}.svc:7101"
        {{- end }}
        {{- with $values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
      envFrom:
        - configMapRef:
            name: {{ include "reput.fullname" $root }}-{{ $component }}
      ports:
        - name: {{ include "reput.portName" . }}
          containerPort: {{ include "reput.port" . }}
        - name: metrics
          containerPort: {{ $ports.metrics }}
      {{- if not $values.maintenance }}
      startupProbe:
        {{- include "reput.probe" . | nindent 8 }}
        periodSeconds: {{ $values.startupProbe.periodSeconds }}
        failureThreshold: {{ $values.startupProbe.failureThreshold }}
        timeoutSeconds: 10
      readinessProbe:
        {{- include "reput.probe" . | nindent 8 }}
        periodSeconds: 10
        timeoutSeconds: 10
      # A started service reports only its own health, not the health of others: a restart would not help them.
      livenessProbe:
        {{- include "reput.probe" . | nindent 8 }}
        periodSeconds: 30
        timeoutSeconds: 10
        failureThreshold: 4
      {{- end }}
      resources:
        {{- toYaml $values.resources | nindent 8 }}
      securityContext:
        {{- toYaml $root.Values.securityContext | nindent 8 }}
      volumeMounts:
        {{- with include "reput.dataMounts" $values }}
        {{- trim . | nindent 8 }}
        {{- end }}
        - name: tmp
          mountPath: /tmp
        {{- if ($values.accessKeys).secretName }}
        - name: access
          mountPath: /etc/reput/access
          readOnly: true
        {{- end }}
        {{- if eq $component "console" }}
        - name: login
          mountPath: /etc/reput/login
          readOnly: true
        {{- if $values.storeToken.secretName }}
        - name: store-token
          mountPath: /etc/reput/store
          readOnly: true
        {{- end }}
        {{- else }}
        {{- if $root.Values.tls.enabled }}
        - name: run
          mountPath: /run/reput
        {{- end }}
        - name: trust
          mountPath: /etc/reput/trust
          readOnly: true
        {{- end }}
        {{- if include "reput.readsShards" . }}
        - name: shards
          mountPath: /etc/reput/shards
          readOnly: true
        {{- end }}
        {{- with include "reput.secretMounts" . }}
        {{- trim . | nindent 8 }}
        {{- end }}
        {{- with $values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- with $values.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- if eq $component "console" }}
    {{- include "reput.consoleVolumes" . | nindent 4 }}
    {{- else }}
    - name: trust
      secret:
        secretName: {{ include "reput.trustSecretName" $root }}
        defaultMode: 0440
    {{- end }}
    - name: tmp
      emptyDir: {medium: Memory, sizeLimit: 64Mi}
    {{- if include "reput.readsShards" . }}
    - name: shards
      configMap:
        name: {{ include "reput.fullname" $root }}-shards
    {{- end }}
    {{- if ($values.accessKeys).secretName }}
    - name: access
      secret:
        secretName: {{ $values.accessKeys.secretName }}
        # readable only for the pod's group
        defaultMode: 0440
        items:
          - key: {{ $values.accessKeys.key }}
            path: keys
    {{- end }}
    {{- with include "reput.dataVolumes" (dict "values" $values "claim" .claim) }}
    {{- trim . | nindent 4 }}
    {{- end }}
    {{- if and $root.Values.tls.enabled (ne $component "console") }}
    - name: run
      emptyDir: {medium: Memory, sizeLimit: 1Mi}
    {{- end }}
    {{- with include "reput.secretVolumes" . }}
    {{- trim . | nindent 4 }}
    {{- end }}
    {{- with $values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if $values.affinity }}
  affinity:
    {{- toYaml $values.affinity | nindent 4 }}
  {{- else if and (eq $component "commitlog") (gt (int $values.replicas) 2) (ne (default "required" $values.antiAffinity) "preferred") }}
  # Two logs on the same machine would be lost together.
  affinity:
    podAntiAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        - topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "reput.selectorLabels" . | nindent 14 }}
  {{- end }}
  {{- if $values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml $values.topologySpreadConstraints | nindent 4 }}
  {{- else if gt (int (default 1 $values.replicas)) 1 }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "reput.selectorLabels" . | nindent 10 }}
  {{- end }}
{{- end }}

{{/* The spec of a claim. Called with the values of persistence. */}}
{{- define "reput.claimSpec" -}}
accessModes:
  {{- toYaml .accessModes | nindent 2 }}
{{- with .storageClassName }}
storageClassName: {{ . }}
{{- end }}
resources:
  requests:
    storage: {{ .size }}
{{- end }}

{{/* Never on a Service that may be of type LoadBalancer: the metrics have no access control. */}}
{{- define "reput.metricsPort" -}}
- name: metrics
  port: {{ .metrics }}
  targetPort: metrics
{{- end }}

{{/* The objects that all services have in the same form: settings and a Service. */}}
{{- define "reput.common" -}}
{{- $ports := index (include "reput.ports" .root | fromJson) .component -}}
{{- include "reput.checkClaims" . -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "reput.fullname" .root }}-{{ .component }}
  labels:
    {{- include "reput.labels" . | nindent 4 }}
data:
  {{- if eq .component "console" }}
  {{- include "reput.consoleEnvironment" . | nindent 2 }}
  {{- else }}
  {{- include "reput.environment" . | nindent 2 }}
  {{- include "reput.clients" (dict "root" .root "component" .component) | trim | nindent 2 }}
  {{- end }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ include "reput.fullname" .root }}-{{ .component }}
  labels:
    {{- include "reput.labels" . | nindent 4 }}
  {{- with .values.service.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  type: {{ .values.service.type | default "ClusterIP" }}
  selector:
    {{- include "reput.selectorLabels" . | nindent 4 }}
  ports:
    - name: {{ include "reput.portName" . }}
      port: {{ include "reput.port" . }}
      targetPort: {{ .values.service.targetPort | default (include "reput.portName" .) }}
    {{- if and (has .component (list "janitor" "delivery")) (not (include "reput.isReplicated" .root)) }}
    {{- include "reput.metricsPort" $ports | nindent 4 }}
    {{- end }}
{{- end }}

{{/* A service whose pods have numbers, and a volume each if it has files: headless Service, StatefulSet, budget. */}}
{{- define "reput.stateful" -}}
{{- $fullname := printf "%s-%s" (include "reput.fullname" .root) .component -}}
{{- $ports := index (include "reput.ports" .root | fromJson) .component -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ $fullname }}-headless
  labels:
    {{- include "reput.labels" . | nindent 4 }}
spec:
  clusterIP: None
  {{- if include "reput.isReplicated" .root }}
  # Copies find each other before they serve.
  publishNotReadyAddresses: true
  {{- end }}
  selector:
    {{- include "reput.selectorLabels" . | nindent 4 }}
  ports:
    - name: grpc
      port: {{ $ports.grpc }}
      targetPort: grpc
    {{- include "reput.metricsPort" $ports | nindent 4 }}
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ $fullname }}
  labels:
    {{- include "reput.labels" . | nindent 4 }}
spec:
  serviceName: {{ $fullname }}-headless
  replicas: {{ .values.replicas }}
  {{- if include "reput.isReplicated" .root }}
  # All at once, so that no pod waits for another. An upgrade continues with the next pod when a pod has caught up.
  podManagementPolicy: Parallel
  minReadySeconds: 15
  {{- end }}
  selector:
    matchLabels:
      {{- include "reput.selectorLabels" . | nindent 6 }}
  template:
    {{- include "reput.podTemplate" . | nindent 4 }}
  {{- with include "reput.claimTemplates" . }}
  volumeClaimTemplates:
    {{- trim . | nindent 4 }}
  {{- end }}
{{- include "reput.budget" . }}
{{- end }}

{{/* A PodDisruptionBudget, with the separator before it, for a service with several pods. */}}
{{- define "reput.budget" -}}
{{- if gt (int .values.replicas) 1 }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "reput.fullname" .root }}-{{ .component }}
  labels:
    {{- include "reput.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "reput.selectorLabels" . | nindent 6 }}
{{- end }}
{{- end }}
