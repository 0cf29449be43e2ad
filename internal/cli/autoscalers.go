// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

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
	"crane.io/crane/pkg/series"
)

// heed makes constraints of the autoscalers that metrics tell of. They are put into the objects that the Kubernetes API
// would have returned, so that one reading of them holds for both.
func heed(ctx context.Context, scaled []metrics.Autoscaler) (workload.Constraints, error) {
	reader := &rebuilt{}
	for _, a := range scaled {
		reader.autoscalers = append(reader.autoscalers, rebuild(a))
	}
	lister := &workload.Lister{
		Sources: func(schema.GroupVersionKind) workload.Source { return workload.Source{Reader: reader} },
		Scheme:  clientgoscheme.Scheme,
	}
	out, err := lister.Constraints(ctx, nil)
	if err != nil {
		return workload.Constraints{}, fmt.Errorf("reading the autoscalers of metrics: %w", err)
	}
	return out, nil
}

func rebuild(a metrics.Autoscaler) autoscalingv2.HorizontalPodAutoscaler {
	out := autoscalingv2.HorizontalPodAutoscaler{}
	out.Namespace, out.Name = a.Target.Namespace, a.Name
	out.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: a.Target.APIVersion, Kind: a.Target.Kind, Name: a.Target.Name}
	for _, m := range []struct {
		name  corev1.ResourceName
		share series.Ratio
	}{{corev1.ResourceCPU, a.CPU}, {corev1.ResourceMemory, a.Memory}} {
		percent := math.Round(float64(m.share) * 100)
		if !(percent >= 1 && percent <= math.MaxInt32) {
			continue
		}
		whole := int32(percent)
		out.Spec.Metrics = append(out.Spec.Metrics, autoscalingv2.MetricSpec{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricSource{
				Name: m.name, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &whole},
			},
		})
	}
	return out
}

// rebuilt lists autoscalers, and nothing of any other kind.
type rebuilt struct {
	autoscalers []autoscalingv2.HorizontalPodAutoscaler
}

// Get is not needed to list.
func (r *rebuilt) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.ErrUnsupported
}

// List fills a list of autoscalers and leaves others empty.
func (r *rebuilt) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if l, ok := list.(*autoscalingv2.HorizontalPodAutoscalerList); ok {
		l.Items = r.autoscalers
	}
	return nil
}
