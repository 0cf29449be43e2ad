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

	// PolicyConfigPath is the file of the DynamicSchedulerPolicy, which is read again when it changes. Defaults to
	// /etc/kubernetes/dynamic-scheduler-policy.yaml.
	PolicyConfigPath string `json:"policyConfigPath,omitempty"`

	// TimeZone is the zone in which times stand in the annotations of nodes, by its IANA name. Defaults to UTC, which
	// Crane's controller writes; gocrane's writes Asia/Shanghai unless told otherwise.
	TimeZone string `json:"timeZone,omitempty"`

	// Strategy is Spread (even out load), Pack (fill nodes up to packTargetPercent) or Risk (even out load and its
	// variation). Defaults to Spread.
	Strategy string `json:"strategy,omitempty"`

	// PackTargetPercent is the load up to which Pack fills a node, from 1 to 99. Defaults to 55.
	PackTargetPercent int32 `json:"packTargetPercent,omitempty"`

	// RiskMarginPercent is how many hundredths of a standard deviation Risk adds to a node's load, from 1 to 1000. Defaults
	// to 100.
	RiskMarginPercent int32 `json:"riskMarginPercent,omitempty"`

	// MinFreshPercent is the share of nodes, from 1 to 100, that have to report a metric for it to count. Where no metric
	// has it, the plugin leaves all nodes as they are. Defaults to 50.
	MinFreshPercent int32 `json:"minFreshPercent,omitempty"`

	// ExplainAddress is a loopback address and port on which the plugin says why it answered as it did: plain HTTP, reading
	// only. Defaults to 127.0.0.1:10260; "none" switches it off.
	ExplainAddress string `json:"explainAddress,omitempty"`

	// History is Recommendations (pods are expected to use what Crane's Recommendation of their workload says, where there
	// is one) or None. Defaults to Recommendations.
	History string `json:"history,omitempty"`
}

// Values of DynamicArgs.
const (
	// ExplainNone switches the address off.
	ExplainNone = "none"
	// HistoryRecommendations watches Recommendations, if the cluster has the kind.
	HistoryRecommendations = "Recommendations"
	// HistoryNone watches nothing.
	HistoryNone = "None"
)

// MissingTopology says what becomes of a node that has no NodeResourceTopology.
type MissingTopology string

const (
	// MissingTopologyPass lets pods on nodes of which nothing is known, as if the plugin were not there.
	MissingTopologyPass MissingTopology = "Pass"
	// MissingTopologyReject keeps pods that want whole CPUs off such nodes.
	MissingTopologyReject MissingTopology = "Reject"
)

// NodeResourceTopologyMatchArgs are the arguments of plugin NodeResourceTopologyMatch.
type NodeResourceTopologyMatchArgs struct {
	metav1.TypeMeta `json:",inline"`

	// TopologyAwareResources are the resources that have to fit into zones. Without cpu among them the plugin does
	// nothing; an empty list switches it off. Defaults to [cpu].
	TopologyAwareResources []string `json:"topologyAwareResources"`

	// MissingTopology is Pass or Reject: what becomes of a node without a NodeResourceTopology, and of all nodes where
	// its CustomResourceDefinition is not installed. Defaults to Pass.
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
