// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/units"
)

// Request is one write. It names the UID and the version of its object, so that the API server refuses it after another change.
type Request struct {
	// Object is the addressed object; Subresource is empty for the object itself.
	Object      *unstructured.Unstructured
	Subresource string
	// Type of the patch: a forced server-side apply, or a merge; empty to create Body.
	Type types.PatchType
	// Manager is the field manager.
	Manager string
	Body    *unstructured.Unstructured
	// Reason describes the purpose in one line.
	Reason string
}

// String returns the address as kubectl writes it: pods/web-1/resize.
func (r Request) String() string {
	name := strings.ToLower(r.Object.GetKind()) + "s/" + r.Object.GetName()
	if r.Subresource != "" {
		name += "/" + r.Subresource
	}

	return name
}

// FieldManager returns the field manager of adopted values of a type.
func FieldManager(kind analysisv1alpha1.AnalysisType) string {
	return "craned-adoption-" + strings.ToLower(string(kind))
}

// Identity returns an object with the identity of the target and nothing else.
func (s *TargetSnapshot) Identity() *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(s.Kind.GVK)
	out.SetNamespace(s.Object.GetNamespace())
	out.SetName(s.Object.GetName())
	out.SetUID(s.Object.GetUID())

	return out
}

// identityWithVersion returns the identity with the resource version of the snapshot.
func (s *TargetSnapshot) identityWithVersion() *unstructured.Unstructured {
	out := s.Identity()
	out.SetResourceVersion(s.Object.GetResourceVersion())
	return out
}

// StateRequest stores the state in its annotation; nil if it is unchanged.
func (s *TargetSnapshot) StateRequest(analysisType analysisv1alpha1.AnalysisType, before, after adoption.State) (*Request, error) {
	old, err := before.Encode()
	if err != nil {
		return nil, err
	}

	text, err := after.Encode()
	if err != nil || text == old {
		return nil, err
	}

	body := s.identityWithVersion()
	why := "remove the record of the adoption"
	if text != "" { // An apply without the annotation removes it.
		body.SetAnnotations(map[string]string{StateAnnotations()[analysisType]: text})
		why = "record the previous and the new size before pods change"
	}

	return &Request{
		Object:  s.Identity(),
		Type:    types.ApplyPatchType,
		Manager: FieldManager(analysisType) + "-state",
		Body:    body,
		Reason:  why,
	}, nil
}

// ResizeRequest resizes one pod in place; nil if the snapshot does not contain the pod.
func (s *TargetSnapshot) ResizeRequest(analysisType analysisv1alpha1.AnalysisType, c adoption.PodResize) *Request {
	for i := range s.Pods {
		if string(s.Pods[i].UID) != c.UID {
			continue
		}

		why := fmt.Sprintf("from %s to %s", c.From, c.To)
		if c.Restarts {
			why += "; its containers restart for it"
		}

		body := ResizePatch(&s.Pods[i], c.To)
		return &Request{
			Object:      body,
			Subresource: "resize",
			Type:        types.ApplyPatchType,
			Manager:     FieldManager(analysisType),
			Body:        body,
			Reason:      why,
		}
	}

	return nil
}

// EvictionRequest evicts one pod, unless disruption budgets refuse it.
func (s *TargetSnapshot) EvictionRequest(e adoption.Eviction) *Request {
	pod := &unstructured.Unstructured{}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	pod.SetNamespace(s.Object.GetNamespace())
	pod.SetName(e.Pod)
	pod.SetUID(types.UID(e.UID))
	body := &unstructured.Unstructured{Object: jsonObject{"deleteOptions": jsonObject{"preconditions": jsonObject{"uid": e.UID}}}}
	body.SetGroupVersionKind(policyv1.SchemeGroupVersion.WithKind("Eviction"))
	body.SetNamespace(pod.GetNamespace())
	body.SetName(e.Pod)

	return &Request{
		Object:      pod,
		Subresource: "eviction",
		Body:        body,
		Reason:      fmt.Sprintf("from %s to %s; %s", e.From, e.To, e.Reason),
	}
}

// ScaleRequest sets the number of replicas through the scale subresource.
func (s *TargetSnapshot) ScaleRequest(to int32) *Request {
	body := s.identityWithVersion()
	body.SetAPIVersion("autoscaling/v1")
	body.SetKind("Scale")
	body.Object["spec"] = jsonObject{"replicas": int64(to)}

	return &Request{
		Object:      s.Identity(),
		Subresource: "scale",
		Type:        types.ApplyPatchType,
		Manager:     FieldManager(analysisv1alpha1.AnalysisTypeReplicas),
		Body:        body,
		Reason:      "to " + units.FormatCount(int(to), "replica"),
	}
}

// AutoscalerRequest sets targets of the autoscaler that Crane owns; nil without one.
func (s *TargetSnapshot) AutoscalerRequest(to []adoption.Target) *Request {
	o := s.autoscaler.object
	if o == nil || len(to) == 0 {
		return nil
	}

	metrics, _, err := unstructured.NestedSlice(o.Object, "spec", "metrics") // NestedSlice returns a deep copy.
	if err != nil {
		return nil
	}

	var parts []string
	for _, t := range to {
		for _, m := range metrics {
			if share := utilizationTarget(m, t); share != nil {
				share["averageUtilization"] = int64(t.Percent)
			}
		}

		parts = append(parts, t.String())
	}

	who := &unstructured.Unstructured{}
	who.SetGroupVersionKind(o.GroupVersionKind())
	who.SetNamespace(o.GetNamespace())
	who.SetName(o.GetName())
	who.SetUID(o.GetUID())
	body := &unstructured.Unstructured{Object: jsonObject{
		"metadata": jsonObject{"uid": string(o.GetUID()), "resourceVersion": o.GetResourceVersion()},
		"spec":     jsonObject{"metrics": metrics},
	}}

	return &Request{
		Object:  who,
		Type:    types.MergePatchType,
		Manager: FieldManager(analysisv1alpha1.AnalysisTypeResource),
		Body:    body,
		Reason:  "the autoscaler acts at the use at which it acted before: " + strings.Join(parts, "; "),
	}
}

// utilizationTarget returns the target of a metric if it is the given one.
func utilizationTarget(metric any, t adoption.Target) map[string]any {
	m, _ := metric.(map[string]any)
	key, name := "resource", "cpu"
	if t.Container != "" {
		key = "containerResource"
	}
	if t.Memory {
		name = "memory"
	}

	source, _ := m[key].(map[string]any)
	container, _ := source["container"].(string)

	target, _ := source["target"].(map[string]any)
	if source["name"] != name || container != t.Container || target["averageUtilization"] == nil {
		return nil
	}

	return target
}

// TemplateRequest applies the size to the pod template, or restores the template by a merge as its previous field manager, after
// which Crane owns none of its fields.
func (s *TargetSnapshot) TemplateRequest(analysisType analysisv1alpha1.AnalysisType, plan adoption.Plan, before adoption.State) *Request {
	body := s.identityWithVersion()
	restore := plan.RestoreTemplate && before.Owner != ""
	format := func(container string) map[string]any { return FormatResources(plan.Template.Containers[container]) }
	if restore && before.Template != nil {
		// What is recorded as written may be the size to restore already, because an earlier attempt failed.
		written := append([]adoption.Size{*before.Template, before.Original}, before.EarlierSizes...)
		format = func(container string) map[string]any {
			return formatRestored(plan.Template.Containers[container], container, written)
		}
	}

	spec := jsonObject{"template": templateResources(s.podSpec, format)}
	if s.Kind.GVK.Kind == "CronJob" {
		spec = jsonObject{"jobTemplate": jsonObject{"spec": spec}}
	}

	body.Object["spec"] = spec
	out := &Request{
		Object:  s.Identity(),
		Type:    types.ApplyPatchType,
		Manager: FieldManager(analysisType),
		Body:    body,
		Reason:  "by a roll-out: " + plan.Template.String(),
	}

	if restore {
		out.Type = types.StrategicMergePatchType
		out.Manager = before.Owner
	}

	return out
}

// Requests returns the requests of a plan in the order in which they are sent. Those to the target name the version of the
// snapshot; in execution each names the version that the one before produced.
func (s *TargetSnapshot) Requests(analysisType analysisv1alpha1.AnalysisType, before adoption.State, plan adoption.Plan) ([]Request, error) {
	state, err := s.StateRequest(analysisType, before, plan.State)
	if err != nil {
		return nil, err
	}

	// The order is that of the controller: the state first, so that a crash in between is continued.
	all := []*Request{state, s.AutoscalerRequest(plan.Targets)}
	for _, c := range plan.Resizes {
		all = append(all, s.ResizeRequest(analysisType, c))
	}

	for _, e := range plan.Evictions {
		all = append(all, s.EvictionRequest(e))
	}

	if plan.Replicas != nil {
		all = append(all, s.ScaleRequest(*plan.Replicas))
	}
	if plan.Template != nil {
		all = append(all, s.TemplateRequest(analysisType, plan, before))
	}

	var out []Request
	for _, r := range all {
		if r != nil {
			out = append(out, *r)
		}
	}

	return out, nil
}
