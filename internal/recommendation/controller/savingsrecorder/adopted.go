// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package savingsrecorder

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetindex"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/savings"
	"crane.io/crane/pkg/units"
)

// pageSize is the number of objects per list request.
const pageSize = 500

// adoptedSize has the sizes of an adopted workload: before the adoption, and as recommended.
type adoptedSize struct{ before, recommended adoption.Size }

// readAdopted returns the adopted workloads, and the number of those whose saving cannot be determined: an unreadable state, a
// Recommendation that is gone, and adopted replicas.
func (r *Recorder) readAdopted(ctx context.Context) (adopted map[workload.Ref]adoptedSize, unknown int, err error) {
	adopted = map[workload.Ref]adoptedSize{}
	for _, kind := range workload.WatchedKinds() {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GVK.GroupVersion().WithKind(kind.GVK.Kind + "List"))

		for {
			if err := r.cfg.Live.List(ctx, list, client.Limit(pageSize), client.Continue(list.Continue)); err != nil {
				return nil, 0, fmt.Errorf("listing %ss: %w", kind.GVK.Kind, err)
			}

			for i := range list.Items {
				o := &list.Items[i]
				if o.Annotations[analysisv1alpha1.AnnotationReplicasAdoption] != "" {
					unknown++
				}

				if o.Annotations[analysisv1alpha1.AnnotationAdoption] == "" {
					continue
				}

				size, ok, err := r.adoptedSize(ctx, o)
				if err != nil {
					return nil, 0, err
				}

				if !ok {
					unknown++
				}

				adopted[workload.Ref{
					Namespace:  o.Namespace,
					APIVersion: kind.GVK.Group,
					Kind:       kind.GVK.Kind,
					Name:       o.Name,
				}] = size
			}

			if list.Continue == "" {
				break
			}
		}
	}

	return adopted, unknown, nil
}

// adoptedSize returns the sizes of a workload; ok is false, and the sizes are empty, if they cannot be determined.
func (r *Recorder) adoptedSize(ctx context.Context, o metav1.Object) (size adoptedSize, ok bool, err error) {
	state, err := targetsnapshot.ReadState(o, analysisv1alpha1.AnalysisTypeResource)
	if err != nil {
		return adoptedSize{}, false, nil //nolint:nilerr // Adoption reports the unreadable state; here the saving is unknown.
	}

	// A tenant can write any name into a state, also that of a Recommendation of others.
	namespace, name, _ := strings.Cut(state.Recommendation, "/")
	if namespace != o.GetNamespace() {
		return adoptedSize{}, false, nil
	}

	rec := &analysisv1alpha1.Recommendation{}

	err = r.cfg.Recommendations.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, rec)
	switch {
	case apierrors.IsNotFound(err):
		return adoptedSize{}, false, nil
	case err != nil:
		return adoptedSize{}, false, fmt.Errorf("reading recommendation %s: %w", state.Recommendation, err)
	}

	recommended, err := targetsnapshot.DesiredSize(rec)
	if err != nil || len(recommended.Containers) == 0 {
		return adoptedSize{}, false, nil //nolint:nilerr // Adoption reports the unreadable value.
	}

	return adoptedSize{before: state.Original, recommended: recommended}, true, nil
}

// addAdopted adds the promised and realized savings of the running pods of adopted workloads. It returns the number of workloads with a size
// that no pod on their nodes can have had: the owner of a workload can write its annotations.
func (r *Recorder) addAdopted(ctx context.Context, tariff *cost.Tariff, adopted map[workload.Ref]adoptedSize, to map[string]savings.Amounts) (int, error) {
	spaces := map[string]bool{}
	implausible := map[workload.Ref]bool{}

	for ref := range adopted {
		spaces[ref.Namespace] = true
	}

	if len(spaces) == 0 {
		return 0, nil
	}

	err := r.cfg.Pods.EachPod(ctx, slices.Sorted(maps.Keys(spaces)), func(object *corev1.Pod, pod workload.Pod, _ bool) error {
		owner := pod.Owner
		owner.APIVersion = workload.GroupOf(owner.APIVersion, owner.Kind)
		size, ok := adopted[owner]

		quote, priced := tariff.Quote(pod.Node)
		if !ok || !priced {
			return nil
		}

		// A tenant can write any size into a state: one that no node of the pod can have is not counted.
		if !fits(size.before, quote.Size) || !fits(size.recommended, quote.Size) {
			implausible[owner] = true
			return nil
		}

		price := tariff.At(map[string]int{pod.Node: 1})
		sum := to[owner.Namespace]
		sum.Promised += priceOf(price, object, size.before, func(c *corev1.Container) rightsize.Resources { return size.recommended.Containers[c.Name] })
		sum.Realized += priceOf(price, object, size.before, func(c *corev1.Container) rightsize.Resources { return inForce(object, c) })
		to[owner.Namespace] = sum

		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("listing the pods of adopted workloads: %w", err)
	}

	return len(implausible), nil
}

// fits reports whether the containers of a size are together no larger than a node.
func fits(size adoption.Size, node cost.Amounts) bool {
	free := node
	for _, c := range size.Containers {
		cpu := ptr.Deref(c.CPURequest, 0)
		memory := ptr.Deref(c.MemoryRequest, 0)
		if cpu > free.CPU || memory > free.Memory {
			return false
		}

		free.CPU -= cpu
		free.Memory -= memory
	}

	return true
}

// priceOf returns the price per hour of the difference between the requests of a pod before the adoption and others. A resource without
// both requests is not counted. Init containers other than sidecars are not: their requests are held only until the others start.
func priceOf(price cost.UnitPrice, pod *corev1.Pod, before adoption.Size, after func(*corev1.Container) rightsize.Resources) float64 {
	var all []cost.Resize
	add := func(c *corev1.Container) {
		was, managed := before.Containers[c.Name]
		if !managed {
			return
		}

		now := after(c)
		all = append(all, cost.Resize{
			Container: c.Name,
			CPUNow:    was.CPURequest,
			CPUNew:    now.CPURequest,
			MemoryNow: was.MemoryRequest,
			MemoryNew: now.MemoryRequest,
		})
	}

	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}

	// Of the init containers, only sidecars use their requests for as long as the pod runs.
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c)
		}
	}

	return cost.SavingOf(price, 1, all).Hourly.Total().PerHour()
}

// inForce returns the requests that a container of a pod holds: during a resize the larger of the desired and the allocated ones, as the
// scheduler counts.
func inForce(pod *corev1.Pod, c *corev1.Container) rightsize.Resources {
	out := targetsnapshot.ConvertResources(c.Resources)
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		i := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == c.Name })
		if i < 0 {
			continue
		}

		allocated := targetsnapshot.ConvertResources(corev1.ResourceRequirements{Requests: statuses[i].AllocatedResources})
		out.CPURequest = larger(out.CPURequest, allocated.CPURequest)
		out.MemoryRequest = larger(out.MemoryRequest, allocated.MemoryRequest)
	}

	return out
}

func larger[T units.MilliCPU | units.Bytes](a, b *T) *T {
	if a == nil || b != nil && *b > *a {
		return b
	}

	return a
}

// addAvailable adds the positive savings of requests that are recommended and not adopted.
// A saving above the price of the cluster is not one of craned's.
func (r *Recorder) addAvailable(ctx context.Context, adopted map[workload.Ref]adoptedSize, out *savings.Sample) error {
	list := &analysisv1alpha1.RecommendationList{}
	if err := r.cfg.Recommendations.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing recommendations: %w", err)
	}

	seen := map[workload.Ref]bool{}
	for i := range list.Items {
		rec := &list.Items[i]
		key := targetindex.KeyOf(rec.Spec.TargetRef)
		ref := workload.Ref{
			Namespace:  key.Namespace,
			APIVersion: key.Group,
			Kind:       key.Kind,
			Name:       key.Name,
		}

		_, isAdopted := adopted[ref]
		if rec.Spec.Type != analysisv1alpha1.AnalysisTypeResource || rec.Status.Savings == nil || isAdopted || seen[ref] {
			continue
		}

		// The amount can be written by tenants, so one that exceeds the cost of the cluster is not counted.
		monthly, err := strconv.ParseFloat(rec.Status.Savings.Monthly, 64)
		hourly := monthly / cost.HoursPerMonth
		if err != nil || !(hourly > 0) || hourly > out.Cluster || rec.Status.Savings.Currency != out.Currency {
			continue
		}

		// Nor do those of a namespace together exceed it.
		seen[ref] = true
		sum := out.Namespaces[ref.Namespace]
		sum.Available = min(sum.Available+hourly, out.Cluster)
		out.Namespaces[ref.Namespace] = sum
	}

	return nil
}
