{{/* Name that every object begins with. */}}
{{- define "shoal.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "shoal.operator" -}}
{{ include "shoal.fullname" . }}-operator
{{- end -}}

{{- define "shoal.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "shoal.operator" .) .Values.serviceAccount.name }}
{{- else -}}
{{ required "serviceAccount.name is needed where serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end -}}
{{- end -}}

{{/* Labels that tell the operator's Pods from all others. Never change for a release: they are a selector. */}}
{{- define "shoal.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "shoal.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* A whole image reference of the part of values given as `image`. */}}
{{- define "shoal.image" -}}
{{- $registry := .root.Values.image.registry | trimSuffix "/" -}}
{{- with $registry }}{{ . }}/{{ end -}}
{{- .image.name -}}
{{- if .image.digest -}}
@{{ .image.digest }}
{{- else -}}
:{{ default .root.Chart.AppVersion .root.Values.image.tag }}
{{- end -}}
{{- end -}}
