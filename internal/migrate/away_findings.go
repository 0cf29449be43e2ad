// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
)

// TemplateRequests are requests that running pods of a workload have and its template lacks, by container and resource.
type TemplateRequests struct {
	Workload Ref                          `json:"workload"`
	Requests map[string]map[string]string `json:"requests"`
}

// findings returns what stops working with Crane.
func (c *craneObjects) findings(templates []TemplateRequests) []Finding {
	var requests, scheduled, served, elastic, quotas []string
	for _, t := range templates {
		requests = append(requests, t.Workload.String())
	}

	for _, w := range c.workloads {
		if stringAt(w, "spec", "template", "spec", "schedulerName") == schedulerName {
			scheduled = append(scheduled, RefOf(w).String())
		}
	}

	// A pod with an owner is found by the template of its workload.
	for _, pod := range c.pods {
		if stringAt(pod, "spec", "schedulerName") == schedulerName && len(pod.GetOwnerReferences()) == 0 {
			scheduled = append(scheduled, RefOf(pod).String())
		}
		if len(elasticRequests(pod)) > 0 {
			elastic = append(elastic, RefOf(pod).String())
		}
	}

	for _, item := range c.items {
		if item.Kind == "Node" && isPredecessorNoted(item.object) {
			quotas = append(quotas, item.String())
		}
	}

	for _, h := range c.readersOfAdapter() {
		served = append(served, RefOf(h).String())
	}

	return slices.Concat(
		one(SeverityDecision, "RequestsOfPods", "running pods of these have other requests than their template, as Crane applied them. They stay as long as the pods; new pods get those of the template. Choose --requests=pods, or --requests=template to write them into the templates, which rolls the workloads out.", requests),
		one(SeverityDecision, "PodsOfScheduler", "these name the scheduler crane-scheduler: without it their new pods stay pending. Choose --scheduler=keep, or change them and choose --scheduler=remove.", scheduled),
		one(SeverityDecision, "MetricsOfAdapter", "these scale on custom or external metrics that Crane's metric-adapter serves. Choose --metric-adapter=keep, or --metric-adapter=remove once another adapter serves them.", served),
		one(SeverityWarning, "ElasticPods", "these request gocrane.io resources. Their nodes keep this capacity while they run; new ones are not scheduled.", elastic),
		one(SeverityWarning, "QuotasOfGocrane", "pods on these may have CPU quotas below their limits that gocrane's agent left, and the record of it is removed. Let crane-agent run with --enforce=cpu-throttle first, or restart the pods.", quotas),
	)
}

// readersOfAdapter returns the HPAs with metrics that Crane's metric-adapter serves, other than forecasts and schedules.
func (c *craneObjects) readersOfAdapter() []*Object {
	serves := map[string]bool{}
	var all []*Object
	for _, item := range c.items {
		switch item.Kind {
		case "APIService":
			_, group, _ := strings.Cut(item.Name, ".")
			serves[group] = true
		case "HorizontalPodAutoscaler":
			all = append(all, item.object)
		}
	}

	return slices.DeleteFunc(append(all, c.hpas...), func(h *Object) bool {
		return !slices.ContainsFunc(mapsAt(h, "spec", "metrics"), func(m map[string]any) bool {
			switch m["type"] {
			case "External":
				return serves["external.metrics.k8s.io"] && !ownMetric(m)
			case "Pods", "Object":
				return serves["custom.metrics.k8s.io"]
			}

			return false
		})
	})
}

// ownMetric reports whether a metric of an HPA is a forecast or a schedule of Crane.
func ownMetric(metric map[string]any) bool {
	name, _, _ := unstructured.NestedString(metric, "external", "metric", "name")
	return name == autoscalingv1alpha1.MetricPrediction || name == autoscalingv1alpha1.MetricCron
}

// templates returns the workloads whose running pods have other requests than the template: the highest of the pods.
func (c *craneObjects) templates() []TemplateRequests {
	// An owner is in the namespace of its dependents: a pod that names the UID of a workload elsewhere is not one of its pods.
	type uidKey struct{ namespace, uid string }

	owner := map[uidKey]string{}
	for _, rs := range c.replicaSets {
		for _, o := range rs.GetOwnerReferences() {
			owner[uidKey{rs.GetNamespace(), string(rs.GetUID())}] = string(o.UID)
		}
	}

	byWorkload := map[uidKey][]*Object{}
	for _, pod := range c.pods {
		for _, o := range pod.GetOwnerReferences() {
			key := uidKey{pod.GetNamespace(), string(o.UID)}
			if workload, ok := owner[key]; ok {
				key.uid = workload
			}

			byWorkload[key] = append(byWorkload[key], pod)
		}
	}

	var out []TemplateRequests
	for _, w := range c.workloads {
		t := TemplateRequests{Workload: RefOf(w), Requests: map[string]map[string]string{}}
		for _, container := range mapsAt(w, "spec", "template", "spec", "containers") {
			t.compare(container, byWorkload[uidKey{w.GetNamespace(), string(w.GetUID())}])
		}

		if len(t.Requests) > 0 {
			out = append(out, t)
		}
	}

	return out
}

// compare adds the requests of a container that differ from those of the template.
func (t TemplateRequests) compare(template map[string]any, pods []*Object) {
	name, _ := template["name"].(string)
	want, _, _ := unstructured.NestedMap(template, "resources", "requests")
	limits, _, _ := unstructured.NestedMap(template, "resources", "limits")
	for _, kind := range []string{"cpu", "memory"} {
		templateRequest, ok := want[kind]
		if !ok { // The API server makes the limit the request too.
			templateRequest, ok = limits[kind]
		}
		if !ok {
			continue // defaults of the namespace may have set it
		}

		base, err := resource.ParseQuantity(fmt.Sprint(templateRequest))
		if err != nil {
			continue
		}

		var maxRequest *resource.Quantity
		for _, pod := range pods {
			for _, c := range mapsAt(pod, "spec", "containers") {
				text, ok, _ := unstructured.NestedString(c, "resources", "requests", kind)
				if q, err := resource.ParseQuantity(text); c["name"] == name && ok && err == nil && (maxRequest == nil || q.Cmp(*maxRequest) > 0) {
					maxRequest = &q
				}
			}
		}

		if maxRequest == nil || maxRequest.Cmp(base) == 0 {
			continue
		}

		if t.Requests[name] == nil {
			t.Requests[name] = map[string]string{}
		}
		t.Requests[name][kind] = maxRequest.String()
	}
}
