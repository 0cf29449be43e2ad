// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginconfig

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Names of the plugins. The kind of a plugin's arguments is its name followed by Args.
const (
	DynamicName                   = "Dynamic"
	NodeResourceTopologyMatchName = "NodeResourceTopologyMatch"
)

// DynamicArgs are the arguments of plugin Dynamic.
type DynamicArgs struct {
	metav1.TypeMeta `json:",inline"`

	// PolicyConfigPath is the file of the DynamicSchedulerPolicy, which is reloaded when it changes. Defaults to
	// /etc/kubernetes/dynamic-scheduler-policy.yaml.
	PolicyConfigPath string `json:"policyConfigPath,omitempty"`

	// TimeZone is the IANA name of the time zone of node annotations. Defaults to UTC, which Crane's controller
	// writes; gocrane's writes Asia/Shanghai by default.
	TimeZone string `json:"timeZone,omitempty"`

	// Strategy is Spread (balance load), Pack (fill nodes up to packTargetPercent) or Risk (balance load plus its
	// variation). Defaults to Spread.
	Strategy string `json:"strategy,omitempty"`

	// PackTargetPercent is the load up to which Pack fills a node, from 1 to 99. Defaults to 55.
	PackTargetPercent int32 `json:"packTargetPercent,omitempty"`

	// RiskMarginPercent is how many hundredths of a standard deviation Risk adds to a node's load, from 1 to 1000. Defaults
	// to 100.
	RiskMarginPercent int32 `json:"riskMarginPercent,omitempty"`

	// MinFreshPercent is the percentage of nodes, from 1 to 100, that must report a metric for it to be used. If no
	// metric qualifies, the plugin neither filters nor scores. Defaults to 50.
	MinFreshPercent int32 `json:"minFreshPercent,omitempty"`

	// ExplainAddress is a loopback address and port that serves explanations of the plugin's answers over plain HTTP,
	// read-only. Defaults to 127.0.0.1:10260; "none" disables it.
	ExplainAddress string `json:"explainAddress,omitempty"`

	// History is Recommendations (the expected usage of a pod is that of its workload's Recommendation, if there is
	// one) or None. Defaults to Recommendations.
	History string `json:"history,omitempty"`
}

// Values of DynamicArgs.
const (
	// ExplainNone disables the address.
	ExplainNone = "none"
	// HistoryRecommendations watches Recommendations, if the cluster has the kind.
	HistoryRecommendations = "Recommendations"
	// HistoryNone disables the watch.
	HistoryNone = "None"
)

// MissingTopology is the policy for nodes without a NodeResourceTopology.
type MissingTopology string

const (
	// MissingTopologyPass treats them as if the plugin were disabled.
	MissingTopologyPass MissingTopology = "Pass"
	// MissingTopologyReject excludes them for pods with whole CPUs.
	MissingTopologyReject MissingTopology = "Reject"
)

// NodeResourceTopologyMatchArgs are the arguments of plugin NodeResourceTopologyMatch.
type NodeResourceTopologyMatchArgs struct {
	metav1.TypeMeta `json:",inline"`

	// TopologyAwareResources are the resources that must fit into zones. Without cpu among them the plugin has no
	// effect; an empty list disables it. Defaults to [cpu].
	TopologyAwareResources []string `json:"topologyAwareResources"`

	// MissingTopology is Pass or Reject: the policy for a node without a NodeResourceTopology, and for all nodes if
	// the CustomResourceDefinition is not installed. Defaults to Pass.
	MissingTopology MissingTopology `json:"missingTopology,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (a *DynamicArgs) DeepCopyObject() runtime.Object {
	if a == nil {
		return nil
	}

	out := *a
	return &out
}

// DeepCopyObject implements runtime.Object.
func (a *NodeResourceTopologyMatchArgs) DeepCopyObject() runtime.Object {
	if a == nil {
		return nil
	}

	out := *a
	out.TopologyAwareResources = slices.Clone(a.TopologyAwareResources) // an empty list stays one: it is not the default
	return &out
}
