// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scalingmetric

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
)

// Key identifies one value of MetricPrediction or MetricCron, like the selector of an HPA.
type Key struct {
	TargetKind, TargetName, TargetNamespace string
	// Identifier is the resourceIdentifier.
	Identifier string
}

// MatchLabels returns the key as the selector of an external metric. Texts that are no label values are encoded, see LabelValue.
func (k Key) MatchLabels() map[string]string {
	return map[string]string{
		autoscalingv1alpha1.MetricLabelTargetKind:         LabelValue(k.TargetKind),
		autoscalingv1alpha1.MetricLabelTargetName:         LabelValue(k.TargetName),
		autoscalingv1alpha1.MetricLabelTargetNamespace:    LabelValue(k.TargetNamespace),
		autoscalingv1alpha1.MetricLabelResourceIdentifier: LabelValue(k.Identifier),
	}
}

// ParseKey parses the selector of a request; its texts are as LabelValue returns them. It rejects a selector of anything but the four labels with one value each, because it
// could match thousands of values, which an HPA would add up.
func ParseKey(selector labels.Selector) (Key, error) {
	var k Key
	requirements, selectable := selector.Requirements()
	if !selectable {
		return k, errors.New("the selector selects nothing")
	}

	fields := map[string]*string{
		autoscalingv1alpha1.MetricLabelTargetKind:         &k.TargetKind,
		autoscalingv1alpha1.MetricLabelTargetName:         &k.TargetName,
		autoscalingv1alpha1.MetricLabelTargetNamespace:    &k.TargetNamespace,
		autoscalingv1alpha1.MetricLabelResourceIdentifier: &k.Identifier,
	}

	for _, r := range requirements {
		field := fields[r.Key()]
		values := r.Values().UnsortedList()

		isSingle := r.Operator() == selection.Equals || r.Operator() == selection.DoubleEquals || r.Operator() == selection.In
		if field == nil || !isSingle || len(values) != 1 {
			return Key{}, fmt.Errorf("selector %q: must have one value for each of targetKind, targetName, targetNamespace and resourceIdentifier", selector)
		}

		*field = values[0]
	}

	for label, field := range fields {
		if *field == "" {
			return Key{}, fmt.Errorf("selector %q: %s is missing", selector, label)
		}
	}

	return k, nil
}

// SelectsPrediction reports whether the controller of EffectiveHorizontalPodAutoscalers created a TimeSeriesPrediction for the
// target of the key.
func (k Key) SelectsPrediction(tsp *predictionv1alpha1.TimeSeriesPrediction) bool {
	ref := tsp.Spec.TargetRef
	return ref != nil && k.selectsTarget(ref.Kind, ref.Name, tsp.Namespace) &&
		tsp.Labels[autoscalingv1alpha1.LabelManagedBy] == autoscalingv1alpha1.ManagedByEffectiveHPA
}

// SelectsAutoscaler reports whether an EffectiveHorizontalPodAutoscaler has the target of the key.
func (k Key) SelectsAutoscaler(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) bool {
	ref := ehpa.Spec.ScaleTargetRef
	return k.selectsTarget(ref.Kind, ref.Name, ehpa.Namespace)
}

func (k Key) selectsTarget(kind, name, namespace string) bool {
	return kind == k.TargetKind && namespace == k.TargetNamespace && sameText(name, k.TargetName)
}
