// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"
)

// metadataPatcher patches nodes and receives only their metadata, because the status of a node is large.
type metadataPatcher struct{ client metadata.ResourceInterface }

// NewPatcher returns a Patcher with its own client, so that its rate limit does not delay other writers.
func NewPatcher(config *rest.Config, qps float32, burst int) (Patcher, error) {
	nodeConfig := rest.CopyConfig(config)
	nodeConfig.RateLimiter = nil
	nodeConfig.QPS = qps
	nodeConfig.Burst = burst
	client, err := metadata.NewForConfig(nodeConfig)
	if err != nil {
		return nil, fmt.Errorf("building the client of nodes: %w", err)
	}

	return metadataPatcher{client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"})}, nil
}

// PatchNode implements Patcher.
func (p metadataPatcher) PatchNode(ctx context.Context, name string, patch []byte) error {
	_, err := p.client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
	return err
}

// PatchUnchangedNode sets annotations (nil values remove them) and fields of the spec of a node. The API server rejects
// the patch with a conflict if the node has changed since n was read, because lists and whole values are replaced.
func PatchUnchangedNode(ctx context.Context, p Patcher, n *corev1.Node, annotations, spec map[string]any) error {
	metadata := map[string]any{"uid": n.UID, "resourceVersion": n.ResourceVersion}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}

	fields := map[string]any{"metadata": metadata}
	if len(spec) > 0 {
		fields["spec"] = spec
	}

	patch, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}

	if err := p.PatchNode(ctx, n.Name, patch); err != nil {
		return fmt.Errorf("patching node %s: %w", n.Name, err)
	}

	return nil
}

// metricsServer lists the usage of nodes from metrics.k8s.io.
type metricsServer struct {
	nodes metricsclient.NodeMetricsInterface
}

// NewMetricsServer returns the source for metrics-server. It sends no request yet.
func NewMetricsServer(config *rest.Config) (NodeUsages, error) {
	client, err := metricsclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building the client of metrics-server: %w", err)
	}

	return metricsServer{client.NodeMetricses()}, nil
}

// NodeUsages implements NodeUsages.
func (m metricsServer) NodeUsages(ctx context.Context) ([]Usage, error) {
	list, err := m.nodes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing metrics of nodes: %w", err)
	}

	out := make([]Usage, len(list.Items))
	for i := range list.Items {
		item := &list.Items[i]
		out[i] = Usage{
			Node:   item.Name,
			Time:   item.Timestamp.Time,
			CPU:    *item.Usage.Cpu(),
			Memory: *item.Usage.Memory(),
		}
	}

	return out, nil
}
