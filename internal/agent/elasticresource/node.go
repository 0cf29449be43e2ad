// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elasticresource

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	model "crane.io/crane/pkg/elastic"
	"crane.io/crane/pkg/series"
)

// nodeChange holds the changes of a Node; nil amounts stay.
type nodeChange struct {
	cpu    *series.MilliCPU
	memory *series.Bytes
	// remove deletes resources with amount 0 instead of showing 0.
	remove     bool
	annotation string
}

// patch returns a strategic merge patch of the Node's status with the two resources and the annotation. It contains the Node's UID, so
// that the API server rejects it for another Node of the same name.
func (c nodeChange) patch(node *corev1.Node) ([]byte, error) {
	amounts := map[corev1.ResourceName]*string{}
	put := func(name corev1.ResourceName, v int64) {
		if v == 0 && c.remove {
			amounts[name] = nil
			return
		}
		amounts[name] = new(resource.NewQuantity(v, resource.DecimalSI).String())
	}
	if c.cpu != nil {
		put(ensurancev1alpha1.ResourceReclaimedCPU, int64(*c.cpu)/1000)
	}
	if c.memory != nil {
		put(ensurancev1alpha1.ResourceReclaimedMemory, int64(*c.memory))
	}
	body := map[string]any{
		"metadata": map[string]any{"uid": node.UID, "annotations": map[string]string{ensurancev1alpha1.AnnotationElasticResources: c.annotation}},
	}
	if len(amounts) > 0 {
		body["status"] = map[string]any{"capacity": amounts, "allocatable": amounts}
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("failed to encode the patch of Node %s: %w", node.Name, err)
	}
	return raw, nil
}

// readReserve returns the share of a resource that is never advertised: the Node's annotation, else the flag's value.
func readReserve(node *corev1.Node, annotation string, otherwise series.Ratio) (series.Ratio, string) {
	value, ok := node.Annotations[annotation]
	if !ok {
		return otherwise, ""
	}
	r, err := model.ParseReserve(value)
	if err != nil {
		return 0, fmt.Sprintf("annotation %s: %v", annotation, err)
	}
	return r, ""
}
