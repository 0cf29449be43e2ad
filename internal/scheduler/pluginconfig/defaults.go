// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginconfig

import (
	"cmp"
	"math"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/pkg/nodeload"
)

// DefaultPolicyConfigPath is the policy path of gocrane's scheduler.
const DefaultPolicyConfigPath = "/etc/kubernetes/dynamic-scheduler-policy.yaml"

// DefaultExplainAddress is next to the port of kube-scheduler, on loopback only.
const DefaultExplainAddress = "127.0.0.1:10260"

// SetDynamicDefaults sets the unset fields of a.
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

// SetNodeResourceTopologyMatchDefaults sets the unset fields of a. An empty list stays empty: it disables the plugin.
func SetNodeResourceTopologyMatchDefaults(a *NodeResourceTopologyMatchArgs) {
	if a.TopologyAwareResources == nil {
		a.TopologyAwareResources = []string{string(corev1.ResourceCPU)}
	}
	if a.MissingTopology == "" {
		a.MissingTopology = MissingTopologyPass
	}
}
