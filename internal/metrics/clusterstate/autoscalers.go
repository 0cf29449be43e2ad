// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterstate

import (
	"context"
	"errors"
	"fmt"
	"math"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/units"
)

// autoscalerConstraints returns the constraints of autoscalers read from metrics. It converts them to the objects of
// the Kubernetes API, so that one implementation evaluates both.
func autoscalerConstraints(ctx context.Context, scaled []metrics.Autoscaler) (workload.Constraints, error) {
	reader := &autoscalerReader{}
	for _, a := range scaled {
		reader.autoscalers = append(reader.autoscalers, newAutoscaler(a))
	}

	lister := &workload.Lister{
		Sources: func(schema.GroupVersionKind) workload.Source { return workload.Source{Reader: reader} },
		Scheme:  clientgoscheme.Scheme,
	}

	out, err := lister.Constraints(ctx, nil)
	if err != nil {
		return workload.Constraints{}, fmt.Errorf("evaluating the autoscalers in metrics: %w", err)
	}

	return out, nil
}

func newAutoscaler(a metrics.Autoscaler) autoscalingv2.HorizontalPodAutoscaler {
	out := autoscalingv2.HorizontalPodAutoscaler{}
	out.Namespace = a.Target.Namespace
	out.Name = a.Name

	out.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: a.Target.APIVersion, Kind: a.Target.Kind, Name: a.Target.Name}
	for _, m := range []struct {
		name  corev1.ResourceName
		share units.Ratio
	}{{corev1.ResourceCPU, a.CPU}, {corev1.ResourceMemory, a.Memory}} {
		percent := math.Round(float64(m.share) * 100)
		if !(percent >= 1 && percent <= math.MaxInt32) {
			continue
		}

		wholePercent := int32(percent)
		out.Spec.Metrics = append(out.Spec.Metrics, autoscalingv2.MetricSpec{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricSource{
				Name: m.name, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &wholePercent},
			},
		})
	}

	return out
}

// autoscalerReader lists the given autoscalers and no other objects.
type autoscalerReader struct {
	autoscalers []autoscalingv2.HorizontalPodAutoscaler
}

// Get is unsupported; the lister does not call it.
func (r *autoscalerReader) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.ErrUnsupported
}

// List returns the autoscalers, and nothing for other kinds.
func (r *autoscalerReader) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if l, ok := list.(*autoscalingv2.HorizontalPodAutoscalerList); ok {
		l.Items = r.autoscalers
	}

	return nil
}
