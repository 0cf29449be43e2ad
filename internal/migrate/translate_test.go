// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"crane.io/crane/internal/kube/manifest"
)

// gocraneFlags are the flags of gocrane 0.11 by component, read off its option structs.
func gocraneFlags() map[string]string {
	return map[string]string{
		componentCraned: `api-qps api-burst metrics-bind-address health-probe-bind-address leader-elect lease-duration lease-retry-period lease-renew-period
			prediction-update-frequency-duration datasource prometheus-address prometheus-adapter-configmap-namespace prometheus-adapter-configmap-name
			prometheus-adapter-configmap-key prometheus-adapter-config prometheus-adapter-extension-labels extension-labels prometheus-auth-username
			prometheus-auth-password prometheus-auth-bearertoken prometheus-query-concurrency prometheus-insecure-skip-verify prometheus-keepalive
			prometheus-timeout prometheus-bratelimit prometheus-maxpoints seed-file grpc-ds-address grpc-ds-timeout model-update-interval webhook-enabled
			recommendation-config-file recommendation-configuration-file qos-config-file ehpa-propagation-label-prefixes ehpa-propagation-annotation-prefixes
			ehpa-propagation-labels ehpa-propagation-annotations oom-record-max-number time-series-prediction-max-concurrent-reconciles cache-unstructured
			recommendation-monitor-interval recommendation-outdate-interval server-bind-address server-bind-port server-enable-profiling server-enable-metrics
			server-mode server-enable-grafana server-grafana-config server-store feature-gates kubeconfig v`,
		componentAdapter: `msg remote-adapter remote-adapter-service-namespace remote-adapter-service-name remote-adapter-service-port api-qps api-burst secure-port
			lister-kubeconfig discovery-interval alsologtostderr v`,
		componentAgent: `hostname-override runtime-endpoint cgroup-driver sys-path kubelet-root-path enable-profiling bind-address collect-interval ifaces
			node-resource-reserved max-inactivity execute-excess cpu-manager-reconcile-period default-cpu-policy feature-gates v`,
	}
}

// TestTranslate_EveryFlag checks that each flag of gocrane is carried over, set by the manifests or dropped with a reason, once; and that Crane has those that
// are carried over.
func TestTranslate_EveryFlag(t *testing.T) {
	for component, text := range gocraneFlags() {
		page, err := os.ReadFile(filepath.FromSlash("../../docs/reference/flags-" + component + ".md"))
		if err != nil {
			t.Fatal(err)
		}

		flags := strings.Fields(text)
		for _, name := range flags {
			carried := slices.Contains(carriedFlags(component), name)
			set := slices.Contains(setByManifest(), name)
			dropped := droppedFlags()[name] != ""
			if n := count(carried, set, dropped); n != 1 {
				t.Errorf("%s --%s: carried over %t, set by manifests %t, dropped %t, want one of them", component, name, carried, set, dropped)
			}

			s := Settings{Args: map[string][]string{}}
			s.addFlags(component, map[string]string{name: "x"})

			if carried != slices.Contains(s.Args[component], "--"+name+"=x") || dropped != (len(s.Dropped) == 1) || dropped && !strings.HasSuffix(s.Dropped[0], droppedFlags()[name]) {
				t.Errorf("addFlags of %s --%s = %+v, want it carried over %t, dropped %t", component, name, s, carried, dropped)
			}
		}

		for _, name := range carriedFlags(component) {
			if !slices.Contains(flags, name) {
				t.Errorf("%s --%s is no flag of gocrane, want carried flags to be", component, name)
			}
			if !strings.Contains(string(page), "`--"+name+"`") {
				t.Errorf("%s has no flag --%s, want each carried one", component, name)
			}
		}

		s := Settings{Args: map[string][]string{}}
		s.addFlags(component, map[string]string{"of-a-fork": "x"})

		if len(s.Dropped) != 1 || !strings.Contains(s.Dropped[0], "is no flag of gocrane") {
			t.Errorf("addFlags of an unknown flag = %+v, want it dropped with the reason", s)
		}
	}
}

func count(all ...bool) (n int) {
	for _, b := range all {
		if b {
			n++
		}
	}

	return n
}

// TestTranslate_InstalledFlags checks that every flag in gocrane's manifests and charts is in the table above.
func TestTranslate_InstalledFlags(t *testing.T) {
	dir := os.Getenv("FIXTURES_GOCRANE")
	if dir == "" {
		dir = filepath.FromSlash("../../../shared/gocrane")
	}

	if _, err := os.Stat(dir); err != nil {
		t.Skipf("gocrane's files are not here: %v", err)
	}

	found := 0
	check := func(component, name string) {
		found++
		if !slices.Contains(strings.Fields(gocraneFlags()[component]), name) {
			t.Errorf("%s --%s is in gocrane's manifests, want it in the table too", component, name)
		}
	}

	for component, file := range map[string]string{componentCraned: "craned/deployment", componentAdapter: "metric-adapter/deployment", componentAgent: "crane-agent/daemonset"} {
		content, err := os.ReadFile(filepath.Join(dir, "deploy", file+".yaml"))
		if err != nil {
			t.Fatal(err)
		}

		objects, err := manifest.ParseString(string(content))
		if err != nil {
			t.Fatal(err)
		}

		for _, o := range objects {
			if o.GetName() == component {
				for name := range flagsOf(o) {
					check(component, name)
				}
			}
		}
	}

	content, err := os.ReadFile(filepath.Join(dir, "charts/crane/values.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	var values map[string]struct {
		ContainerArgs     map[string]any `json:"containerArgs"`
		RemoteAdapterArgs map[string]any `json:"remoteAdapterArgs"`
	}

	if err := yaml.Unmarshal(content, &values); err != nil {
		t.Fatal(err)
	}

	for key, component := range map[string]string{"craned": componentCraned, "metricAdapter": componentAdapter, "craneAgent": componentAgent} {
		for name := range values[key].ContainerArgs {
			check(component, name)
		}

		for name := range values[key].RemoteAdapterArgs {
			check(component, name)
		}
	}

	if found < 15 {
		t.Errorf("%d flags found, want 15 or more", found)
	}
}

// TestTranslate checks how a configuration arrives in Crane's manifests and in values of its chart.
func TestTranslate(t *testing.T) {
	workload := func(kind, name, args string) Item {
		objects, err := manifest.ParseString(`{apiVersion: apps/v1, kind: ` + kind + `, metadata: {name: ` + name + `, namespace: crane-system}, spec: {template: {spec: {containers: [{name: x, ` + args + `}]}}}}`)
		if err != nil {
			t.Fatal(err)
		}

		return Item{Ref: RefOf(objects[0]), object: objects[0]}
	}

	config := func(name, key, text string) Item {
		o := namespacedRef("v1", "ConfigMap", craneNamespace, name).empty()
		o.SetName(name)
		o.SetNamespace(craneNamespace)
		_ = unstructured.SetNestedField(o.Object, text, "data", key)

		return Item{Ref: RefOf(o), object: o}
	}

	const policy = "apiVersion: scheduler.policy.crane.io/v1alpha1\nkind: DynamicSchedulerPolicy\nspec:\n  syncPolicy:\n  - name: cpu_usage_avg_7m\n    period: 3m\n"
	cron := workload("EffectiveHorizontalPodAutoscaler", "web", "image: i")
	_ = unstructured.SetNestedSlice(cron.object.Object, []any{map[string]any{"name": "a"}}, "spec", "crons")
	inv := &Inventory{Items: []Item{
		workload("Deployment", "craned", "command: [/craned, '--prometheus-address=http://mine:9090', '-v=4', '--api-qps', '7', '--prometheus-insecure-skip-verify', '--server-mode=debug']"),
		workload("Deployment", "metric-adapter", "args: [/metric-adapter, '--remote-adapter=true', '--prometheus-address=PROMETHEUS_ADDRESS']"),
		workload("DaemonSet", "crane-agent", "command: [/crane-agent, '--collect-interval=5s', '--ifaces=eth1']"),
		config("recommendation-configuration", "config.yaml", "recommenders: []"), config("dynamic-scheduler-policy", "policy.yaml", policy), cron,
	}}

	s := translate(inv)
	if s.Prometheus != "http://mine:9090" || s.Recommendation != "recommenders: []" || !s.LocalCrons || s.Policy != policy || len(s.Dropped) != 2 {
		t.Fatalf("translate = %+v, want the settings of gocrane's flags and files", s)
	}

	builtin, err := builtinManifests(Options{ImageRegistry: "r", ImageTag: "1"})
	if err != nil {
		t.Fatal(err)
	}

	builtin = s.apply(builtin)
	for ref, want := range map[Ref][]string{
		namespacedRef("apps/v1", "Deployment", craneNamespace, componentCraned):    {"--prometheus-address=http://mine:9090", "--v=4", "--api-qps=7", "--prometheus-insecure-skip-verify=true", "--recommendation-configuration-file=/etc/crane-recommendation/config.yaml", "--ehpa-cron-local-time=true", "Asia/Shanghai"},
		namespacedRef("apps/v1", "Deployment", craneNamespace, componentAdapter):   {"--prometheus-address=http://mine:9090", "--remote-adapter=true", "--ehpa-cron-local-time=true", "Asia/Shanghai"},
		namespacedRef("apps/v1", "DaemonSet", craneNamespace, componentAgent):      {"--collect-interval=5s"},
		namespacedRef("v1", "ConfigMap", craneNamespace, "crane-node-load-policy"): {"name: cpu_usage_avg_7m"},
		namespacedRef("v1", "ConfigMap", craneNamespace, recommendationConfigName): {"config.yaml: 'recommenders: []'"},
	} {
		i := slices.IndexFunc(builtin, func(o *Object) bool { return RefOf(o) == ref })
		text, err := yaml.Marshal(builtin[i].Object)
		if err != nil {
			t.Fatal(err)
		}

		for _, part := range want {
			if !strings.Contains(string(text), part) {
				t.Errorf("%s lacks %s, want it:\n%s", ref, part, text)
			}
		}
	}

	values, err := s.HelmValues(Options{ImageRegistry: "r", ImageTag: "1"})
	if err != nil {
		t.Fatal(err)
	}

	for _, part := range []string{"registry: r", "url: http://mine:9090", "--v=4", "--collect-interval=5s", "--remote-adapter=true", "cpu_usage_avg_7m", "recommendationConfiguration: 'recommenders: []'"} {
		if !strings.Contains(string(values), part) {
			t.Errorf("HelmValues lack %s, want it:\n%s", part, values)
		}
	}
}

// TestBuiltinManifests_Images checks that all images of the built-in manifests are those of the options, and that the tag without an option is the version of this
// program, if that has images.
func TestBuiltinManifests_Images(t *testing.T) {
	objects, err := builtinManifests(Options{ImageRegistry: "registry.example/crane/", ImageTag: "v1.2.3"})
	if err != nil {
		t.Fatal(err)
	}

	var images []string
	for _, o := range objects {
		editContainers(o, func(c map[string]any) { images = append(images, fmt.Sprint(c["image"])) })
	}

	slices.Sort(images)
	want := []string{
		"registry.example/crane/crane-agent:v1.2.3", "registry.example/crane/crane-scheduler:v1.2.3", "registry.example/crane/craned:v1.2.3",
		"registry.example/crane/metric-adapter:v1.2.3",
	}
	if !slices.Equal(images, want) {
		t.Errorf("images %v, want %v", images, want)
	}

	// Binaries of tests have no version.
	if _, err := builtinManifests(Options{ImageRegistry: "r"}); err == nil || !strings.Contains(err.Error(), "--image-tag") {
		t.Errorf("builtinManifests without a version: %v, want an error that names --image-tag", err)
	}

	for of, ok := range map[string]bool{
		"v1.2.3": true, "v1.2.3-rc.1": true, "v0.1.0-3-gb2f6611": true, "b2f6611-dirty": true,
		"unknown": false, "v1.2.3+dirty": false, "v0.0.0-20251127162300-b2f66119aabb": false, "v1.2.4-0.20251127162300-b2f66119aabb": false,
	} {
		if tag, err := defaultTag(of); (err == nil) != ok || ok && tag != of {
			t.Errorf("defaultTag(%s) = %q, %v, want it accepted: %t", of, tag, err, ok)
		}
	}
}

// TestRulesIn checks that recording rules of gocrane are recognized in PrometheusRules and ConfigMaps, and others are not.
func TestRulesIn(t *testing.T) {
	parse := func(text string) []string {
		objects, err := manifest.ParseString(text)
		if err != nil {
			t.Fatal(err)
		}

		return rulesIn(objects[0])
	}

	for text, want := range map[string]string{
		`{apiVersion: monitoring.coreos.com/v1, kind: PrometheusRule, metadata: {name: a}, spec: {groups: [{rules: [{record: cpu_usage_avg_5m}, {record: 'namespace:container_cpu_usage_costs_hourly:sum_rate'}, {alert: x}, 7]}, {rules: 5}]}}`: `cpu_usage_avg_5m namespace:container_cpu_usage_costs_hourly:sum_rate`,
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: b}, data: {r.yaml: "- record: \"mem_usage_active\"\n- record: 'node:node_cpu_hourly_cost:avg'\n- record: other\n"}}`:                                                                 `mem_usage_active node:node_cpu_hourly_cost:avg`,
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {r.yaml: "cpu_usage_avg_5m is a word in a text"}}`:                                                                                                                         ``,
		`{apiVersion: monitoring.coreos.com/v1, kind: PrometheusRule, metadata: {name: d}, spec: {groups: {not: a list}}}`:                                                                                                                       ``,
	} {
		if got := strings.Join(parse(text), " "); got != want {
			t.Errorf("rules %q, want %q in %s", got, want, regexp.MustCompile(`name: \w`).FindString(text))
		}
	}
}
