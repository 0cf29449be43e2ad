// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/pkg/nodeload"
)

const (
	// recheckInterval is the interval at which a cluster without Recommendations is checked for them.
	recheckInterval = 5 * time.Minute
	// typeResource is the type of Recommendation for CPU and memory.
	typeResource = "Resource"
	// maxUsage bounds the milli-CPU and bytes of a container, so that sums do not overflow: who may write a status may write any amount.
	maxUsage = 1 << 50
)

// watchRecommendations keeps the history up to date until ctx ends. A cluster without the kind is checked again from
// time to time, without blocking. size is called with the number of workloads.
func watchRecommendations(ctx context.Context, kubeconfig *rest.Config, clk clock.WithTicker, history *History, size func(float64)) {
	log := klog.FromContext(ctx).WithValues("plugin", Name)
	ticker := clk.NewTicker(recheckInterval)
	defer ticker.Stop()

	// The CustomResourceDefinition may be installed later.
	for first := true; ; first = false {
		err := haveRecommendations(kubeconfig)
		if err == nil {
			break
		}

		if first {
			log.V(1).Info("no Recommendations to read, pods are expected to use a share of their requests", "reason", err.Error())
		}

		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}

	client, err := dynamic.NewForConfig(kubeconfig)
	if err != nil {
		log.Error(err, "building the client of Recommendations")
		return
	}

	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	informer := factory.ForResource(analysisv1alpha1.GroupVersion.WithResource("recommendations")).Informer()
	if err := followRecommendations(informer, history, size, log); err != nil {
		log.Error(err, "watching Recommendations")
		return
	}

	informer.RunWithContext(ctx)
}

func haveRecommendations(kubeconfig *rest.Config) error {
	client, err := discovery.NewDiscoveryClientForConfig(kubeconfig)
	if err != nil {
		return fmt.Errorf("building a discovery client: %w", err)
	}

	_, err = client.ServerResourcesForGroupVersion(analysisv1alpha1.GroupVersion.String())
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%s is not served", analysisv1alpha1.GroupVersion)
	}

	return err
}

// followRecommendations updates the history from an informer of Recommendations.
func followRecommendations(informer cache.SharedIndexInformer, history *History, size func(float64), log klog.Logger) error {
	if err := informer.SetTransform(trimRecommendation); err != nil {
		return fmt.Errorf("setting the transform: %w", err)
	}

	err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		log.V(2).Info("cannot read Recommendations, retrying", "err", err) // The reflector retries with backoff.
	})
	if err != nil {
		return fmt.Errorf("setting the error handler: %w", err)
	}

	learn := func(obj any) {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			if w, use, ok := usageOfRecommendation(u); ok {
				history.Learn(w, use)
				size(float64(history.Len()))
			}
		}
	}

	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    learn,
		UpdateFunc: func(_, obj any) { learn(obj) },
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}

			if u, ok := obj.(*unstructured.Unstructured); ok {
				if w, _, ok := usageOfRecommendation(u); ok {
					history.Learn(w, nodeload.Amount{})
					size(float64(history.Len()))
				}
			}
		},
	})
	if err != nil {
		return fmt.Errorf("adding the event handler: %w", err)
	}

	return nil
}

// trimRecommendation keeps the fields that usageOfRecommendation reads.
func trimRecommendation(obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}

	// The metadata is what an informer needs: the key and the version.
	trimmed := &unstructured.Unstructured{Object: map[string]any{}}
	trimmed.SetAPIVersion(u.GetAPIVersion())
	trimmed.SetKind(u.GetKind())
	trimmed.SetNamespace(u.GetNamespace())
	trimmed.SetName(u.GetName())
	trimmed.SetUID(u.GetUID())
	trimmed.SetResourceVersion(u.GetResourceVersion())

	for _, path := range [][]string{{"spec", "type"}, {"spec", "targetRef"}, {"status", "recommendedValue"}} {
		value, found, err := unstructured.NestedFieldNoCopy(u.Object, path...)
		if err != nil || !found {
			continue
		}

		if err := unstructured.SetNestedField(trimmed.Object, value, path...); err != nil {
			return nil, fmt.Errorf("keeping %v of %s/%s: %w", path, u.GetNamespace(), u.GetName(), err)
		}
	}

	return trimmed, nil
}

// usageOfRecommendation returns the recommended resources of a pod of the workload: the sum over all containers. It
// exceeds the mean usage, more so if the usage varies, which errs on the side of spreading. ok is false for other
// types, and for a target in another namespace, which is not for the owner of the Recommendation to describe. An invalid value counts as none.
func usageOfRecommendation(u *unstructured.Unstructured) (w Workload, use nodeload.Amount, ok bool) {
	text := func(path ...string) string {
		s, _, _ := unstructured.NestedString(u.Object, path...) // a field of another type is not a string
		return s
	}
	if text("spec", "type") != typeResource {
		return Workload{}, nodeload.Amount{}, false
	}

	w = Workload{Namespace: text("spec", "targetRef", "namespace"), Kind: text("spec", "targetRef", "kind"), Name: text("spec", "targetRef", "name")}
	if w.Namespace == "" {
		w.Namespace = u.GetNamespace()
	}
	if w.Namespace != u.GetNamespace() {
		return Workload{}, nodeload.Amount{}, false
	}

	var value analysisv1alpha1.ProposedRecommendation
	if err := yaml.Unmarshal([]byte(text("status", "recommendedValue")), &value); err != nil || value.ResourceRequest == nil {
		return w, nodeload.Amount{}, w.Name != ""
	}

	for _, c := range value.ResourceRequest.Containers {
		list := corev1.ResourceList{}
		for name, quantity := range c.Target {
			if q, err := resource.ParseQuantity(quantity); err == nil {
				list[name] = q
			}
		}

		a := amount(list)
		if a.CPU > maxUsage || a.Memory > maxUsage {
			return w, nodeload.Amount{}, w.Name != ""
		}

		use.CPU += a.CPU
		use.Memory += a.Memory
	}

	return w, use, w.Name != ""
}
