{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/* Environment of a console. It is an ordinary client: no token of services or operators. Called with root, component, values. */}}
{{- define "reput.consoleEnvironment" -}}
{{- $root := .root -}}
{{- $settings := dict "listen_host" "0.0.0.0" "metrics_host" "0.0.0.0" "log_format" "json" "drain_timeout_ms" .values.drainTimeoutMs -}}
{{- $_ := set $settings "login_token_file" "/etc/reput/login/token" -}}
{{- $service := printf "%s-console" (include "reput.fullname" $root) -}}
{{- $hosts := list $service (printf "%s.%s" $service $root.Release.Namespace) (printf "%s.%s.svc" $service $root.Release.Namespace) -}}
{{- with .values.config.allowed_hosts -}}
{{- $hosts = append $hosts . -}}
{{- end -}}
{{- $_ := set $settings "allowed_hosts" (join "," $hosts) -}}
{{- if $root.Values.shards -}}
{{- $_ := set $settings "shards_file" "/etc/reput/shards/shards.toml" -}}
{{- else -}}
{{- range $peer := index (include "reput.peers" . | fromJson) .component -}}
{{- $_ := set $settings (printf "%s_target" $peer) (include "reput.clientTarget" (dict "root" $root "component" $peer)) -}}
{{- end -}}
{{- end -}}
{{- if ($root.Values.gateway).enabled -}}
{{- $_ := set $settings "gateway_target" (include "reput.target" (dict "root" $root "component" "gateway")) -}}
{{- end -}}
{{- if not (or ($root.Values.delivery).enabled $root.Values.shards) -}}
{{- $_ := set $settings "delivery_target" "" -}}
{{- end -}}
{{- if .values.storeToken.secretName -}}
{{- $_ := set $settings "store_token_file" "/etc/reput/store/token" -}}
{{- else if $root.Values.token.secretName -}}
{{- $_ := set $settings "store_token_file" "/etc/reput/token/token" -}}
{{- end -}}
{{- if $root.Values.tls.enabled -}}
{{- $files := dict "tls_certificate" "tls.crt" "tls_key" "tls.key" "store_ca" "ca.crt" -}}
{{- if $root.Values.tls.clientCertificates -}}
{{- $_ := merge $files (dict "store_certificate" "tls.crt" "store_key" "tls.key") -}}
{{- end -}}
{{- range $name, $file := $files -}}
{{- $_ := set $settings (printf "%s_file" $name) (printf "/etc/reput/tls/%s" $file) -}}
{{- end -}}
{{- else -}}
{{- $_ := set $settings "allow_insecure" true -}}
{{- end -}}
{{- include "reput.variables" (dict "component" .component "settings" (merge $settings .values.config)) -}}
{{- end }}

{{/* The Secret with the tokens that open the console. */}}
{{- define "reput.loginSecretName" -}}
{{- .Values.console.login.secretName | default (printf "%s-console" (include "reput.fullname" .)) -}}
{{- end }}

{{/* The volumes of the tokens of a console, readable only for the pod's group. Called with root and values. */}}
{{- define "reput.consoleVolumes" -}}
- name: login
  secret:
    secretName: {{ include "reput.loginSecretName" .root }}
    defaultMode: 0440
    items:
      - key: {{ .values.login.key }}
        path: token
{{- if .values.storeToken.secretName }}
- name: store-token
  secret:
    secretName: {{ .values.storeToken.secretName }}
    defaultMode: 0440
    items:
      - key: {{ .values.storeToken.key }}
        path: token
{{- end }}
{{- end }}
