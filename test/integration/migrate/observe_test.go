// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// sample returns the state of workloads, autoscalers and pods under load that a migration must not change, by object.
func (f *fixture) sample(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	deployments, err := f.list(ctx, "apps", "v1", "Deployment", client.InNamespace(loadNamespace))
	if err != nil {
		return nil, err
	}

	for i := range deployments.Items {
		d := &deployments.Items[i]
		ready, _, _ := unstructured.NestedInt64(d.Object, "status", "readyReplicas")
		replicas, _, _ := unstructured.NestedInt64(d.Object, "spec", "replicas")
		out["Deployment "+d.GetName()] = fmt.Sprintf("replicas=%d ready=%d", replicas, ready)

		if n := f.load.replicas[d.GetName()]; n != nil {
			n.Store(replicas)
		}
	}

	hpas, err := f.list(ctx, "autoscaling", "v2", "HorizontalPodAutoscaler", client.InNamespace(loadNamespace))
	if err != nil {
		return nil, err
	}

	for i := range hpas.Items {
		h := &hpas.Items[i]
		out["HPA "+h.GetName()] = fmt.Sprintf("uid=%s target=%s max=%s desired=%s gap=%s", h.GetUID(), field(h, "spec", "scaleTargetRef", "name"),
			field(h, "spec", "maxReplicas"), field(h, "status", "desiredReplicas"), f.gap(ctx, h))
	}

	predictions, err := f.list(ctx, "prediction.crane.io", "v1alpha1", "TimeSeriesPrediction", client.InNamespace(loadNamespace))
	if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) { // a removal of Crane deletes the kind
		return nil, err
	}

	for i := range predictions.Items {
		p := &predictions.Items[i]
		out["TimeSeriesPrediction "+p.GetName()] = fmt.Sprintf("uid=%s managed-by=%s", p.GetUID(), p.GetLabels()["app.kubernetes.io/managed-by"])
	}

	pods, err := f.list(ctx, "", "v1", "Pod", client.InNamespace(loadNamespace))
	if err != nil {
		return nil, err
	}

	for i := range pods.Items {
		p := &pods.Items[i]
		restarts := int64(0)
		statuses, _, _ := unstructured.NestedSlice(p.Object, "status", "containerStatuses")
		for _, s := range statuses {
			n, _, _ := unstructured.NestedInt64(s.(map[string]any), "restartCount")
			restarts += n
		}

		requests, _, _ := unstructured.NestedSlice(p.Object, "spec", "containers")
		out["Pod "+p.GetName()] = fmt.Sprintf("uid=%s restarts=%d ready=%t deleted=%t requests=%v", p.GetUID(), restarts, isReady(p), p.GetDeletionTimestamp() != nil,
			requests[0].(map[string]any)["resources"])
	}

	return out, nil
}

func isReady(p *object) bool {
	conditions, _, _ := unstructured.NestedSlice(p.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		m, _ := c.(map[string]any)
		return m["type"] == "Ready" && m["status"] == "True"
	})
}

// gap returns what an HPA lacks: a condition that is not met, or an external metric that the API server does not answer as it asks for it.
func (f *fixture) gap(ctx context.Context, h *object) string {
	conditions, _, _ := unstructured.NestedSlice(h.Object, "status", "conditions")
	met := map[any]any{}
	for _, c := range conditions {
		m, _ := c.(map[string]any)
		met[m["type"]] = m["status"]

		if (m["type"] == "ScalingActive" || m["type"] == "AbleToScale") && m["status"] != "True" {
			return fmt.Sprint(m["message"])
		}
	}

	if met["ScalingActive"] == nil {
		return "no condition"
	}

	metrics, _, _ := unstructured.NestedSlice(h.Object, "spec", "metrics")
	for _, m := range metrics {
		metric, ok, _ := unstructured.NestedMap(m.(map[string]any), "external", "metric")
		if !ok {
			continue
		}

		selector, _, _ := unstructured.NestedStringMap(metric, "selector", "matchLabels")
		var pairs []string
		for _, key := range slices.Sorted(maps.Keys(selector)) {
			pairs = append(pairs, key+"="+selector[key])
		}

		path := fmt.Sprintf("/apis/external.metrics.k8s.io/v1beta1/namespaces/%s/%s?labelSelector=%s", loadNamespace, metric["name"], url.QueryEscape(strings.Join(pairs, ",")))
		body, err := f.discovery.RESTClient().Get().RequestURI(path).DoRaw(ctx)
		if err != nil {
			return fmt.Sprintf("%s: %v", metric["name"], err)
		}

		if !strings.Contains(string(body), `"value"`) {
			return fmt.Sprintf("%s: %s", metric["name"], body)
		}
	}

	return "none"
}

// observer compares the cluster each second with its start.
type observer struct {
	*fixture
	first map[string]string

	mu sync.Mutex
	// ignored reports whether an object may change; nil for none.
	ignored func(name string) bool
	// last is the previous state; a difference is reported once until it changes.
	last        map[string]string
	samples     int
	differences []string
}

// observe compares the cluster with its present state until the test ends.
func (f *fixture) observe() *observer {
	f.Helper()

	first, err := f.sample(f.Context())
	if err != nil {
		f.Fatal(err)
	}

	o := &observer{fixture: f, first: first, last: map[string]string{}}
	f.repeat(time.Second, o.compareOnce)
	return o
}

func (o *observer) compareOnce(ctx context.Context) {
	now, err := o.sample(ctx)
	if err == nil {
		err = o.bindLoaded(ctx)
	}

	if ctx.Err() != nil {
		return
	}

	o.mu.Lock()
	defer o.mu.Unlock()

	o.samples++
	add := func(format string, args ...any) {
		o.differences = append(o.differences, fmt.Sprintf("second %d: ", o.samples)+fmt.Sprintf(format, args...))
	}

	if err != nil {
		add("%v", err)
		return
	}

	for name, was := range o.first {
		if o.ignored != nil && o.ignored(name) {
			continue
		}

		if now[name] != was && now[name] != o.last[name] {
			add("%s was %q, is %q", name, was, now[name])
		}
	}

	for name, is := range now {
		if _, known := o.first[name]; !known && o.last[name] != is && (o.ignored == nil || !o.ignored(name)) {
			add("%s is new: %s", name, is)
		}
	}

	o.last = now
}

// ignore leaves objects out of the comparison from now on.
func (o *observer) ignore(ignored func(name string) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()

	o.ignored = ignored
}

// hold lets the comparison go on for a number of samples.
func (o *observer) hold(d time.Duration) {
	o.Helper()

	o.mu.Lock()
	until := o.samples + int(d/time.Second)
	o.mu.Unlock()

	o.eventually("samples", func(context.Context) error {
		o.mu.Lock()
		defer o.mu.Unlock()

		if o.samples < until {
			return fmt.Errorf("%d of %d", o.samples, until)
		}

		return nil
	})
}

// report fails the test with each difference.
func (o *observer) report(what string) {
	o.Helper()

	o.mu.Lock()
	defer o.mu.Unlock()

	for i, d := range o.differences {
		if i == 40 {
			o.Errorf("%s: %d differences more", what, len(o.differences)-i)
			break
		}

		o.Errorf("%s: %s", what, d)
	}

	o.Logf("%s: %d comparisons of %d objects, %d differences", what, o.samples, len(o.first), len(o.differences))
	o.samples = 0
	o.differences = nil
}
