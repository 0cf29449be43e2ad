// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cranemetrics

import (
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
)

// TargetIndex indexes predictions and autoscalers by kind and name of their target.
const TargetIndex = "crane.io/scale-target"

// AddIndexes adds the field indexes of the provider. The cache must not have started.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, o := range []client.Object{&predictionv1alpha1.TimeSeriesPrediction{}, &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}} {
		if err := indexer.IndexField(ctx, o, TargetIndex, TargetIndexValues); err != nil {
			return fmt.Errorf("indexing %T by target: %w", o, err)
		}
	}
	return nil
}

// TargetIndexValues returns the values of TargetIndex for an object.
func TargetIndexValues(o client.Object) []string {
	switch o := o.(type) {
	case *predictionv1alpha1.TimeSeriesPrediction:
		if ref := o.Spec.TargetRef; ref != nil {
			return []string{ref.Kind + "/" + ref.Name}
		}
	case *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler:
		return []string{o.Spec.ScaleTargetRef.Kind + "/" + o.Spec.ScaleTargetRef.Name}
	}
	return nil
}

// TrimObject removes what no metric is computed from before an object is cached: managed fields, annotations and the state of
// ledgers. The sample values of a forecast share one string, because hundreds of strings for each forecast would keep the garbage
// collector busy.
func TrimObject(object any) (any, error) {
	o, ok := object.(client.Object)
	if !ok {
		return object, nil
	}
	o.SetManagedFields(nil)
	o.SetAnnotations(nil)
	if tsp, ok := object.(*predictionv1alpha1.TimeSeriesPrediction); ok {
		for i := range tsp.Status.PredictionMetrics {
			m := &tsp.Status.PredictionMetrics[i]
			if m.Scaling != nil {
				m.Scaling.Ledger = ""
			}
			for n := range m.Prediction {
				shareSampleMemory(m.Prediction[n].Samples)
			}
		}
	}
	return object, nil
}

// shareSampleMemory makes the values of samples substrings of one string.
func shareSampleMemory(samples []predictionv1alpha1.Sample) {
	size := 0
	for i := range samples {
		size += len(samples[i].Value)
	}
	var all strings.Builder
	all.Grow(size)
	for i := range samples {
		all.WriteString(samples[i].Value)
	}
	text := all.String()
	for i := range samples {
		n := len(samples[i].Value)
		samples[i].Value, text = text[:n], text[n:]
	}
}
