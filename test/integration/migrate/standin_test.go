// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"crane.io/crane/config"
	"crane.io/crane/internal/kube/manifest"
)

// standInCharts stand for gocrane's charts, and the first two for its manifests, where its files are not here. They have the names, selectors, images
// and flags by which an installation is recognized.
func standInCharts() map[string]string {
	return map[string]string{
		"crane":         standInRights("craned", true) + standInRights("metric-adapter", true) + standInRights("crane-agent", false) + standInCrane,
		"scheduler":     standInRights("scheduler", false) + standInRights("crane-scheduler-controller", false) + standInScheduler,
		"fadvisor":      standInRights("fadvisor", false) + standInCost("fadvisor"),
		"cost-exporter": standInRights("cost-exporter", false) + standInCost("cost-exporter"),
	}
}

//go:embed testdata/standin-crane.yaml
var standInCrane string

const standInScheduler = `---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: crane-scheduler, namespace: NAMESPACE}, spec: {replicas: 1, selector: {matchLabels: {component: scheduler}}, template: {metadata: {labels: {component: scheduler}}, spec: {serviceAccountName: scheduler, containers: [{name: scheduler, image: 'docker.io/gocrane/crane-scheduler:v0.2.2', command: [/scheduler, --config=/etc/config.yaml]}]}}}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: crane-scheduler-controller, namespace: NAMESPACE}, spec: {replicas: 1, selector: {matchLabels: {app: crane-scheduler-controller}}, template: {metadata: {labels: {app: crane-scheduler-controller}}, spec: {serviceAccountName: crane-scheduler-controller, containers: [{name: controller, image: 'docker.io/gocrane/crane-scheduler-controller:v0.2.2', command: [/controller, --policy-config-path=/data/policy.yaml]}]}}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: scheduler-config, namespace: NAMESPACE}, data: {scheduler-config.yaml: "apiVersion: kubescheduler.config.k8s.io/v1beta2\nkind: KubeSchedulerConfiguration\n"}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: dynamic-scheduler-policy, namespace: NAMESPACE}, data: {policy.yaml: "apiVersion: scheduler.policy.crane.io/v1alpha1\nkind: DynamicSchedulerPolicy\nspec:\n  syncPolicy:\n  - {name: cpu_usage_avg_5m, period: 3m}\n  predicate:\n  - {name: cpu_usage_avg_5m, maxLimitPecent: 0.65}\n  priority:\n  - {name: cpu_usage_avg_5m, weight: 0.2}\n  hotValue:\n  - {timeRange: 5m, count: 5}\n"}}
`

func standInCost(name string) string {
	return fmt.Sprintf(`---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: %[1]s, namespace: NAMESPACE}, spec: {replicas: 1, selector: {matchLabels: {app: %[1]s}}, template: {metadata: {labels: {app: %[1]s}}, spec: {serviceAccountName: %[1]s, containers: [{name: %[1]s, image: 'docker.io/gocrane/fadvisor:v0.2.0', command: [/%[1]s]}]}}}}
---
{apiVersion: v1, kind: Service, metadata: {name: %[1]s, namespace: NAMESPACE}, spec: {selector: {app: %[1]s}, ports: [{name: http, port: 8081}]}}
`, name)
}

// standInRights returns a ServiceAccount with a ClusterRole of its name; all reports whether it grants everything.
func standInRights(name string, all bool) string {
	rules := "{apiGroups: [''], resources: [pods, nodes], verbs: [get, list, watch]}"
	if all {
		rules = "{apiGroups: ['*'], resources: ['*'], verbs: ['*']}"
	}

	return fmt.Sprintf(`---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: %[1]s, namespace: NAMESPACE}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: %[1]s}, rules: [%[2]s]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: %[1]s}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}, subjects: [{kind: ServiceAccount, name: %[1]s, namespace: NAMESPACE}]}
`, name, rules)
}

// standInChart returns a chart and its objects.
func (f *fixture) standInChart(name, namespace string) (chart, []*object) {
	f.Helper()

	text := strings.ReplaceAll(standInCharts()[name], "NAMESPACE", namespace)
	objects, err := manifest.ParseString(text)
	if err != nil {
		f.Fatal(err)
	}

	return chart{Name: name, Version: "0.11.0", AppVersion: "v0.11.0", text: text}, objects
}

// standInDefinitions returns Crane's CRDs as gocrane had them: of its generator, most without status as a subresource, and ConfigSets only by YAML.
func (f *fixture) standInDefinitions(by string) []*object {
	f.Helper()

	all, err := manifest.ReadDir(config.CRDs, ".")
	if err != nil {
		f.Fatal(err)
	}

	all = slices.DeleteFunc(all, func(o *object) bool { return by == "helm" && strings.HasPrefix(o.GetName(), "configsets.") })
	for _, o := range all {
		annotate(o, "controller-gen.kubebuilder.io/version", "v0.7.0")
		plural, _, _ := strings.Cut(o.GetName(), ".")
		if !slices.Contains([]string{"analytics", "recommendationrules", "recommendations", "avoidanceactions", "nodeqoss", "podqoss", "noderesourcetopologies"}, plural) {
			continue
		}

		versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
		for _, v := range versions {
			delete(v.(map[string]any), "subresources")
		}
		_ = unstructured.SetNestedSlice(o.Object, versions, "spec", "versions")
	}

	return all
}
