// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Settings is the configuration of a gocrane installation in Crane's terms.
type Settings struct {
	// Prometheus is the address of Prometheus.
	Prometheus string `json:"prometheus,omitempty"`
	// Args are flags by component.
	Args map[string][]string `json:"args,omitempty"`
	// Policy is the policy of node loads; empty if gocrane's scheduler is not installed.
	Policy string `json:"policy,omitempty"`
	// Recommendation is the configuration of recommenders, of ConfigMap recommendation-configuration; empty for none.
	Recommendation string `json:"recommendation,omitempty"`
	// LocalCrons reports whether cron windows are evaluated in the zone of gocrane's image.
	LocalCrons bool `json:"localCrons,omitempty"`
	// Dropped are gocrane's flags that are not carried over, with the reason.
	Dropped []string `json:"dropped,omitempty"`
}

// carriedFlags are gocrane's flags that mean the same in Crane, by component.
func carriedFlags(component string) []string {
	switch component {
	case componentCraned:
		return []string{
			"feature-gates", "prediction-update-frequency-duration", "datasource", "extension-labels", "prometheus-auth-username", "prometheus-auth-password", "prometheus-auth-bearertoken",
			"prometheus-query-concurrency", "prometheus-insecure-skip-verify", "prometheus-timeout", "prometheus-maxpoints", "grpc-ds-address", "grpc-ds-timeout", "model-update-interval", "api-qps", "api-burst", "v",
			"ehpa-propagation-label-prefixes", "ehpa-propagation-annotation-prefixes", "ehpa-propagation-labels", "ehpa-propagation-annotations", "oom-record-max-number",
			"time-series-prediction-max-concurrent-reconciles", "recommendation-outdate-interval", "prometheus-keepalive", "prometheus-adapter-extension-labels",
			"lease-duration", "lease-retry-period", "lease-renew-period",
		}

	case componentAdapter:
		return []string{"discovery-interval", "remote-adapter", "remote-adapter-service-namespace", "remote-adapter-service-name", "remote-adapter-service-port", "api-qps", "api-burst", "v"}
	case componentAgent:
		return []string{"feature-gates", "node-resource-reserved", "collect-interval", "max-inactivity", "default-cpu-policy", "execute-excess", "cpu-manager-reconcile-period", "kubelet-root-path", "v"}
	}

	return nil
}

// setByManifest are flags that Crane's manifests set themselves.
func setByManifest() []string {
	return []string{
		"prometheus-address", "recommendation-configuration-file", "secure-port", "leader-elect", "metrics-bind-address", "health-probe-bind-address",
		"bind-address", "hostname-override", "webhook-enabled", "server-bind-address", "server-bind-port", "kubeconfig", "lister-kubeconfig",
	}
}

// droppedFlags are gocrane's flags that are not carried over, with the reason.
func droppedFlags() map[string]string {
	const (
		file      = "names a file: mount it and set the flag with --manifests"
		dashboard = "Crane has no Grafana dashboard in craned"
		logging   = "of klog: the log goes to standard error"
		right     = "craned needs the right to read it: grant it and set the flag with --manifests"
	)

	return map[string]string{
		"prometheus-adapter-config": file, "qos-config-file": file, "seed-file": "use --datasource=csv with --csv-dir",
		"prometheus-adapter-configmap-namespace": right, "prometheus-adapter-configmap-name": right, "prometheus-adapter-configmap-key": right,
		"prometheus-bratelimit": "--prometheus-query-concurrency always holds", "recommendation-config-file": "had no effect in gocrane",
		"cache-unstructured": "objects of custom kinds are not cached", "recommendation-monitor-interval": "the age of recommendations is computed at each scrape",
		"server-enable-profiling": "use --pprof-bind-address", "server-enable-metrics": "requests are always counted", "server-mode": "use --v",
		"server-enable-grafana": dashboard, "server-grafana-config": dashboard, "server-store": dashboard,
		"msg": "had no effect", "runtime-endpoint": "no container runtime is called", "cgroup-driver": "is detected", "sys-path": "use --host-root",
		"ifaces": "all interfaces are measured", "enable-profiling": "had no effect in gocrane; use --pprof-bind-address",
		"alsologtostderr": logging, "logtostderr": logging, "log-dir": logging, "log_dir": logging, "log-file": logging, "log_file": logging, "stderrthreshold": logging, "vmodule": logging,
		"log_file_max_size": logging, "log-file-max-size": logging, "skip_headers": logging, "skip-headers": logging, "skip_log_headers": logging, "skip-log-headers": logging,
		"add_dir_header": logging, "add-dir-header": logging, "log_backtrace_at": logging, "log-backtrace-at": logging, "one_output": logging, "one-output": logging,
	}
}

// translate reads the configuration of gocrane's workloads.
func translate(inv *Inventory) Settings {
	s := Settings{Args: map[string][]string{}, LocalCrons: inv.hasLocalCrons()}
	for _, item := range inv.Items {
		switch {
		case item.Kind == "Deployment" || item.Kind == "DaemonSet":
			s.addFlags(item.Name, flagsOf(item.object))
		case item.Kind == "ConfigMap" && item.Name == recommendationConfigName:
			s.Recommendation = stringMapAt(item.object, "data")["config.yaml"]
		case item.Kind == "ConfigMap" && item.Name == "dynamic-scheduler-policy":
			for _, text := range stringMapAt(item.object, "data") {
				if len(metricsIn(text)) > 0 {
					s.Policy = text
				}
			}
		}
	}

	slices.Sort(s.Dropped)
	return s
}

// addFlags sorts the flags of a workload by what becomes of them.
func (s *Settings) addFlags(component string, flags map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		value := flags[name]
		switch {
		case name == "prometheus-address":
			if strings.HasPrefix(value, "http") && (s.Prometheus == "" || component == componentCraned) {
				s.Prometheus = value
			}
		case slices.Contains(setByManifest(), name):
		case slices.Contains(carriedFlags(component), name):
			s.Args[component] = append(s.Args[component], "--"+name+"="+value)

		case component == componentCraned || component == componentAdapter || component == componentAgent:
			reason := droppedFlags()[name]
			if reason == "" {
				reason = "is no flag of gocrane 0.11"
			}

			s.Dropped = append(s.Dropped, component+" --"+name+"="+value+": "+reason)
		}
	}
}

// flagsOf returns the flags of the first container of a workload.
func flagsOf(o *Object) map[string]string {
	out := map[string]string{}
	containers := mapsAt(o, "spec", "template", "spec", "containers")
	if len(containers) == 0 {
		return out
	}

	command, _, _ := unstructured.NestedStringSlice(containers[0], "command")
	args, _, _ := unstructured.NestedStringSlice(containers[0], "args")
	last := "" // the flag before, if it has no value yet
	for _, arg := range append(command, args...) {
		if !strings.HasPrefix(arg, "-") {
			// Boolean flags ignore such a value.
			if last != "" && arg != "true" && arg != "false" {
				out[last] = arg
			}

			last = ""
			continue
		}

		name, value, ok := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		last = ""

		if !ok {
			value = "true"
			last = name
		}

		out[name] = value
	}

	return out
}

// recommendationConfigName is the name of the ConfigMap of recommenders.
const recommendationConfigName = "recommendation-configuration"

// recommendationConfig returns the ConfigMap of recommenders in Crane's namespace.
func (s Settings) recommendationConfig() *Object {
	o := (Ref{APIVersion: "v1", Kind: "ConfigMap"}).empty()
	o.SetNamespace(craneNamespace)
	o.SetName(recommendationConfigName)
	o.SetLabels(map[string]string{labelPartOf: "crane"})
	o.Object["data"] = map[string]any{"config.yaml": s.Recommendation}

	return o
}

// apply returns the manifests of Crane with the settings. Flags of users come last and count.
func (s Settings) apply(desired []*Object) []*Object {
	for _, o := range desired {
		if o.GetKind() == "ConfigMap" && o.GetName() == "crane-node-load-policy" && s.Policy != "" {
			_ = unstructured.SetNestedField(o.Object, s.Policy, "data", "policy.yaml")
		}

		if o.GetKind() != "Deployment" && o.GetKind() != "DaemonSet" {
			continue
		}

		editContainers(o, func(c map[string]any) {
			if c["name"] == o.GetName() {
				s.applyTo(o.GetName(), c)
			}
		})

		if o.GetName() == componentCraned && s.Recommendation != "" {
			mountRecommendation(o)
		}
	}

	if s.Recommendation == "" {
		return desired
	}

	return append(desired, s.recommendationConfig())
}

func (s Settings) applyTo(component string, c map[string]any) {
	args, _, _ := unstructured.NestedStringSlice(c, "args")
	if s.Prometheus != "" {
		for i := range args {
			if strings.HasPrefix(args[i], "--prometheus-address=") {
				args[i] = "--prometheus-address=" + s.Prometheus
			}
		}
	}

	// A later flag overrides an earlier one, so the settings of users come last.
	args = append(args, s.Args[component]...)
	if component == componentCraned && s.Recommendation != "" {
		args = append(args, "--recommendation-configuration-file=/etc/crane-recommendation/config.yaml")
	}

	if s.LocalCrons && (component == componentCraned || component == componentAdapter) {
		args = append(args, "--ehpa-cron-local-time=true")
		env, _ := c["env"].([]any)
		c["env"] = append(slices.Clone(env), map[string]any{"name": "TZ", "value": "Asia/Shanghai"})
	}

	list := make([]any, 0, len(args))
	for _, a := range args {
		list = append(list, a)
	}
	c["args"] = list
}

// mountRecommendation mounts the ConfigMap of recommenders.
func mountRecommendation(o *Object) {
	path := []string{"spec", "template", "spec", "volumes"}
	volumes, _, _ := unstructured.NestedSlice(o.Object, path...)
	volumes = append(volumes, map[string]any{"name": "recommendation", "configMap": map[string]any{"name": recommendationConfigName}})
	_ = unstructured.SetNestedSlice(o.Object, volumes, path...)
	editContainers(o, func(c map[string]any) {
		if c["name"] == componentCraned {
			mounts, _ := c["volumeMounts"].([]any)
			c["volumeMounts"] = append(slices.Clone(mounts), map[string]any{"name": "recommendation", "mountPath": "/etc/crane-recommendation", "readOnly": true})
		}
	})
}

// HelmValues returns values of Crane's chart with the settings, for `helm template` or a later `helm upgrade --install --take-ownership`.
func (s Settings) HelmValues(o Options) ([]byte, error) {
	component := func(name string) map[string]any {
		args := append([]string{}, s.Args[name]...)
		out := map[string]any{}
		if s.LocalCrons && name != componentAgent {
			args = append(args, "--ehpa-cron-local-time=true")
			out["extraEnv"] = []any{map[string]any{"name": "TZ", "value": "Asia/Shanghai"}}
		}

		if len(args) > 0 {
			out["extraArgs"] = args
		}

		return out
	}

	values := map[string]any{
		"image":               map[string]any{"registry": o.ImageRegistry, "tag": o.ImageTag},
		"prometheus":          map[string]any{"url": s.Prometheus},
		"recommendationRules": map[string]any{"create": false},
		"craned":              component(componentCraned),
		"metricAdapter":       component(componentAdapter),
		"craneAgent":          component(componentAgent),
	}

	// Without these the chart's defaults apply.
	if s.Policy != "" {
		values["nodeLoadPolicy"] = s.Policy
	}
	if s.Recommendation != "" {
		values["recommendationConfiguration"] = s.Recommendation
	}

	return yaml.Marshal(values)
}
