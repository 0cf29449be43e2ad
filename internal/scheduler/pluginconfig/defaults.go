// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginconfig

import (
	"cmp"
	"math"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/pkg/nodeload"
)

// DefaultPolicyConfigPath is where gocrane's scheduler looks for its policy file.
const DefaultPolicyConfigPath = "/etc/kubernetes/dynamic-scheduler-policy.yaml"

// DefaultExplainAddress is next to the port of kube-scheduler, where other hosts cannot reach it.
const DefaultExplainAddress = "127.0.0.1:10260"

// SetDynamicDefaults fills what a leaves open.
func SetDynamicDefaults(a *DynamicArgs) {
	a.PolicyConfigPath = cmp.Or(a.PolicyConfigPath, DefaultPolicyConfigPath)
	a.TimeZone = cmp.Or(a.TimeZone, "UTC")
	a.Strategy = cmp.Or(a.Strategy, string(nodeload.Spread))
	a.PackTargetPercent = cmp.Or(a.PackTargetPercent, int32(math.Round(100*float64(nodeload.DefaultPackTarget))))
	a.RiskMarginPercent = cmp.Or(a.RiskMarginPercent, 100*nodeload.DefaultRiskMargin)
	a.MinFreshPercent = cmp.Or(a.MinFreshPercent, int32(math.Round(100*float64(nodeload.DefaultMinFresh))))
	a.ExplainAddress = cmp.Or(a.ExplainAddress, DefaultExplainAddress)
	a.History = cmp.Or(a.History, HistoryRecommendations)
}

// SetNodeResourceTopologyMatchDefaults fills what a leaves open. An empty list stays empty: it switches the plugin off.
func SetNodeResourceTopologyMatchDefaults(a *NodeResourceTopologyMatchArgs) {
	if a.TopologyAwareResources == nil {
		a.TopologyAwareResources = []string{string(corev1.ResourceCPU)}
	}
	if a.MissingTopology == "" {
		a.MissingTopology = MissingTopologyPass
	}
}
