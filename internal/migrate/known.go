// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"slices"
	"strings"
)

// Fate is what a migration makes of an object.
type Fate string

// The fates.
const (
	// FateKept is an object that no step changes.
	FateKept Fate = "kept"
	// FateTakenOver is an object that Crane uses from then on, in place or under the same name.
	FateTakenOver Fate = "taken over"
	// FateTranslated is an object whose content becomes an object or a flag of Crane.
	FateTranslated Fate = "translated"
	// FateRemoved is an object that is deleted, or a part of an object that is withdrawn.
	FateRemoved Fate = "removed"
	// FateDecision is an object about which the user decides.
	FateDecision Fate = "needs a decision"
)

// Fates returns the fates in the order of reports.
func Fates() []Fate {
	return []Fate{FateDecision, FateTakenOver, FateTranslated, FateRemoved, FateKept}
}

// The components of gocrane.
const (
	componentCraned    = "craned"
	componentAdapter   = "metric-adapter"
	componentAgent     = "crane-agent"
	componentScheduler = "crane-scheduler"
	componentCost      = "cost"
	componentObjects   = "objects"
	componentNodes     = "nodes"
	componentUsers     = "users"
	componentHelm      = "helm"
)

// knownObject is an object that an installation of gocrane has under a fixed name.
type knownObject struct {
	kind, name, component string
	fate                  Fate
	note                  string
}

// knownObjects returns the objects of gocrane's charts and manifests.
func knownObjects() []knownObject {
	const (
		replaced = "deleted and created anew: its selector cannot be changed; until then it is stopped"
		wide     = "replaced by narrower rights"
	)

	return []knownObject{
		{"Deployment", "craned", componentCraned, FateTakenOver, replaced},
		{"Service", "craned", componentCraned, FateTakenOver, "selects Crane's pods; port 443 moves to Service craned-webhook, port 9090 (dashboard) goes"},
		{"ServiceAccount", "craned", componentCraned, FateTakenOver, ""},
		{"ClusterRole", "craned", componentCraned, FateTakenOver, wide},
		{"ClusterRoleBinding", "craned", componentCraned, FateTakenOver, ""},
		{"Role", "craned", componentCraned, FateTakenOver, wide},
		{"RoleBinding", "craned", componentCraned, FateTakenOver, ""},
		{"Secret", "webhook-server-tls", componentCraned, FateRemoved, "its private key is published in gocrane's repositories"},
		{"Secret", "clusters-secret-store", componentCraned, FateDecision, "the clusters of gocrane's dashboard; Crane does not read it, it is kept unless you delete it"},
		{"ConfigMap", recommendationConfigName, componentCraned, FateTranslated, "read by craned with --recommendation-configuration-file"},
		{"ConfigMap", "nginx-conf", componentCraned, FateRemoved, "of gocrane's dashboard"},
		{"ConfigMap", "oom-record", componentCraned, FateTakenOver, "the format is the same"},
		{"Lease", "craned", componentCraned, FateTakenOver, "the same lease: gocrane's craned and Crane's exclude each other"},
		{"MutatingWebhookConfiguration", "crane-mutating-webhook", componentCraned, FateRemoved, "replaced by crane and crane-pods"},
		{"ValidatingWebhookConfiguration", "crane-validating-webhook", componentCraned, FateRemoved, "replaced by crane; its failurePolicy Fail would block writes"},
		{"Deployment", "metric-adapter", componentAdapter, FateTakenOver, "deleted without its pods and created anew; the old pods answer until the new ones are ready"},
		{"Service", "metric-adapter", componentAdapter, FateTakenOver, "selects Crane's pods"},
		{"ServiceAccount", "metric-adapter", componentAdapter, FateTakenOver, ""},
		{"ClusterRole", "metric-adapter", componentAdapter, FateRemoved, "grants everything; " + wide},
		{"ClusterRoleBinding", "metric-adapter", componentAdapter, FateRemoved, wide},
		{"ClusterRole", "custom-metrics-reader", componentAdapter, FateRemoved, "the HPA controller has the right by the built-in role"},
		{"ClusterRoleBinding", "metric-adapter-custom-metrics", componentAdapter, FateRemoved, "the HPA controller has the right by the built-in role"},
		{"ClusterRoleBinding", "system-auth-delegator", componentAdapter, FateRemoved, "replaced by crane-metric-adapter-auth-delegator"},
		{"RoleBinding", "metric-adapter-auth-reader", componentAdapter, FateRemoved, "replaced by crane-metric-adapter-auth-reader"},
		{"APIService", "v1beta1.external.metrics.k8s.io", componentAdapter, FateTakenOver, "answered by the same Service; Crane's metric-adapter replaces insecureSkipTLSVerify by its authority"},
		{"DaemonSet", "crane-agent", componentAgent, FateTakenOver, replaced},
		{"Service", "crane-agent", componentAgent, FateRemoved, "Crane's agents have no Service"},
		{"ServiceAccount", "crane-agent", componentAgent, FateTakenOver, ""},
		{"ClusterRole", "crane-agent", componentAgent, FateTakenOver, wide},
		{"ClusterRoleBinding", "crane-agent", componentAgent, FateTakenOver, ""},
		{"ConfigMap", "noderesource-tsp-template", componentAgent, FateKept, "read by crane-agent where elastic resources are on"},
		{"Deployment", "crane-scheduler", componentScheduler, FateTakenOver, replaced},
		{"ServiceAccount", "scheduler", componentScheduler, FateRemoved, "replaced by crane-scheduler"},
		{"ClusterRole", "scheduler", componentScheduler, FateRemoved, "replaced by crane-scheduler"},
		{"ClusterRoleBinding", "scheduler", componentScheduler, FateRemoved, "replaced by crane-scheduler"},
		{"ConfigMap", "scheduler-config", componentScheduler, FateTranslated, "to kubescheduler.config.k8s.io/v1 in ConfigMap crane-scheduler"},
		{"ConfigMap", "dynamic-scheduler-policy", componentScheduler, FateTranslated, "to ConfigMap crane-node-load-policy"},
		{"Deployment", "crane-scheduler-controller", componentScheduler, FateRemoved, "craned writes the loads of nodes"},
		{"ServiceAccount", "crane-scheduler-controller", componentScheduler, FateRemoved, ""},
		{"ClusterRole", "crane-scheduler-controller", componentScheduler, FateRemoved, ""},
		{"ClusterRoleBinding", "crane-scheduler-controller", componentScheduler, FateRemoved, ""},
		{"Lease", "crane-scheduler-controller", componentScheduler, FateRemoved, ""},
		{"Deployment", "fadvisor", componentCost, FateKept, noteCost()},
		{"Deployment", "cost-exporter", componentCost, FateKept, noteCost()},
	}
}

func noteCost() string {
	return "works without gocrane; craned exports costs too, remove it when your dashboards use those"
}

// costNames are the names of the objects of the charts fadvisor and cost-exporter.
func costNames() []string { return []string{"fadvisor", "cost-exporter"} }

// known returns the entry of an object by kind and name.
func known(kind, name string) (knownObject, bool) {
	all := knownObjects()
	i := slices.IndexFunc(all, func(k knownObject) bool { return k.kind == kind && k.name == name })
	if i >= 0 {
		return all[i], true
	}

	if slices.Contains(costNames(), name) {
		return knownObject{kind, name, componentCost, FateKept, noteCost()}, true
	}

	return knownObject{}, false
}

// namespacedKind reports whether objects of the kind have a namespace, for the kinds of gocrane's manifests.
func namespacedKind(r Ref) bool {
	switch r.Kind {
	case "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "APIService", "Namespace", "Node", "PriorityClass",
		"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "RecommendationRule", "NodeQOS", "PodQOS", "AvoidanceAction", "NodeResourceTopology":
		return false
	}

	return true
}

// gocraneImage reports whether a text contains the name of an image of gocrane's registry.
func gocraneImage(text string) bool {
	for _, name := range []string{"craned", "metric-adapter", "crane-agent", "crane-scheduler", "crane-scheduler-controller", "dashboard", "fadvisor"} {
		if strings.Contains(text, "gocrane/"+name) {
			return true
		}
	}

	return false
}

// gocraneGroups are the API groups of gocrane's CRDs.
func gocraneGroups() []string {
	return []string{"analysis.crane.io", "autoscaling.crane.io", "ensurance.crane.io", "prediction.crane.io", "topology.crane.io"}
}

// Keys of gocrane on objects of others.
const (
	labelManagedBy       = "app.kubernetes.io/managed-by"
	ehpaManager          = "effective-hpa-controller"
	labelPartOf          = "app.kubernetes.io/part-of"
	schedulerName        = "crane-scheduler"
	externalMetricsAPI   = "v1beta1.external.metrics.k8s.io"
	annotationTopology   = "topology.crane.io/"
	resourcePrefix       = "gocrane.io/"
	annotationAnalysis   = "analysis.crane.io/"
	annotationAccount    = "kubernetes.io/service-account.name"
	generatorOfGocrane   = "v0.7.0"
	annotationGenerator  = "controller-gen.kubebuilder.io/version"
	recommendationSuffix = "-recommendation"
)
