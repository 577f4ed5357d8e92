{{- define "tessera.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "tessera.labels" -}}
app.kubernetes.io/part-of: tessera
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* "tessera.selector" (list . "driver") */}}
{{- define "tessera.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: tessera-{{ index . 1 }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
{{- end }}

{{- /* CEL: a container of the Pod spec `s` has limits or requests that are ours. A Pod without containers has null there, and
       is Kubernetes' to refuse. */}}
{{- define "tessera.specAsksForGPU" -}}
((s.containers == null ? [] : s.containers) + (has(s.initContainers) ? s.initContainers : [])).exists(c, has(c.resources) && (
{{- "" }} (has(c.resources.limits) && c.resources.limits.{{ include "tessera.asksForGPU" . }}) ||
{{- "" }} (has(c.resources.requests) && c.resources.requests.{{ include "tessera.asksForGPU" . }})))
{{- end }}

{{- /* CEL: `names` holds a resource of ours, or one that looks like ours (misspelt: answered, not ignored).
       Every name may be a list, "nvidia.com/gpu,nvidia.com/vgpu": the first is preferred, the rest are aliases.
       Not what NVIDIA's device plugin hands out beside us, where ours is called otherwise, or its own. */}}
{{- define "tessera.asksForGPU" -}}
{{- $names := .Values.resourceNames -}}
{{- $all := list -}}
{{- range list $names.count $names.memory $names.memoryPercentage $names.cores $names.priority -}}
{{- range splitList "," . -}}{{- $all = append $all (trim .) -}}{{- end -}}
{{- end -}}
{{- $gpu := printf "%s/gpu" (first $all | splitList "/" | first) -}}
exists(k, k in {{ $all | uniq | toJson | replace "\"" "'" }} ||
{{- "" }} (k.startsWith('{{ $gpu }}') && !(k in ['{{ $gpu }}', '{{ $gpu }}.shared'])))
{{- end }}
