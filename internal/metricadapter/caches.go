// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricadapter

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/metricadapter/cranemetrics"
)

// objectCaches cache the objects that Crane's metrics are computed from.
type objectCaches struct {
	cache.Cache
	synced map[string]func() bool // by resource
}

// newObjectCaches returns caches of autoscalers, and of the predictions that autoscalers control. They are not started.
func newObjectCaches(ctx context.Context, config *rest.Config) (*objectCaches, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)

	if err := errors.Join(predictionv1alpha1.AddToScheme(scheme), autoscalingv1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("building the scheme: %w", err)
	}

	// Predictions of other owners are no metrics of an autoscaler and stay out of memory.
	managed := labels.SelectorFromSet(labels.Set{autoscalingv1alpha1.LabelManagedBy: autoscalingv1alpha1.ManagedByEffectiveHPA})
	store, err := cache.New(config, cache.Options{
		Scheme:                      scheme,
		DefaultTransform:            cranemetrics.TrimObject,
		ReaderFailOnMissingInformer: true,
		ByObject: map[client.Object]cache.ByObject{
			&predictionv1alpha1.TimeSeriesPrediction{}:              {Label: managed},
			&autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}: {},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("building the cache: %w", err)
	}

	c := &objectCaches{Cache: store, synced: map[string]func() bool{}}
	for resource, o := range map[string]client.Object{
		"timeseriespredictions":             &predictionv1alpha1.TimeSeriesPrediction{},
		"effectivehorizontalpodautoscalers": &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{},
	} {
		informer, err := store.GetInformer(ctx, o, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watching %s: %w", resource, err)
		}

		c.synced[resource] = informer.HasSynced
	}

	return c, cranemetrics.AddIndexes(ctx, store)
}

// checkSynced returns an error until all caches are synced.
func (c *objectCaches) checkSynced() error {
	for resource, synced := range c.synced {
		if !synced() {
			return fmt.Errorf("%s have not been read yet", resource)
		}
	}

	return nil
}
