// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package optout decides which pods the label crane.io/opt-out excludes from changes: those that have it themselves, and those of a
// namespace or workload that has it. craned publishes the workloads in a ConfigMap, because an agent does not watch workloads.
package optout

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

const (
	// ConfigMapName is the name of the ConfigMap in Crane's own namespace that lists workloads with the label.
	ConfigMapName = "crane-opt-outs"
	// KeyWorkloads is its key: one workload per line, as "Kind namespace/name". The kind Namespace stands for all workloads of a namespace.
	KeyWorkloads = "workloads"
	// Reason describes a pod that is excluded.
	Reason = "it has opted out (" + analysisv1alpha1.LabelOptOut + ")"
	// KindNamespace is the kind of an entry that excludes a whole namespace.
	KindNamespace = "Namespace"
)

// maxBytes bounds the list; a ConfigMap may have 1 MiB.
const maxBytes = 900 << 10

// Labeled reports whether labels have the opt-out.
func Labeled(labels map[string]string) bool { return labels[analysisv1alpha1.LabelOptOut] == "true" }

// Workload names a workload; for KindNamespace the name is empty.
type Workload struct{ Kind, Namespace, Name string }

// Set holds excluded namespaces and workloads. The nil set is empty.
type Set map[Workload]struct{}

// Add adds a workload, or with KindNamespace a namespace.
func (s Set) Add(w Workload) { s[w] = struct{}{} }

// AddNamespace excludes a namespace.
func (s Set) AddNamespace(name string) { s.Add(Workload{Kind: KindNamespace, Namespace: name}) }

// Excludes reports whether a pod must not be changed.
func (s Set) Excludes(pod *corev1.Pod) bool {
	return Labeled(pod.Labels) || slices.ContainsFunc(Candidates(pod), s.has)
}

func (s Set) has(w Workload) bool {
	_, ok := s[w]
	return ok
}

// jobTime is the time that the CronJob controller appends to the names of Jobs.
var jobTime = regexp.MustCompile(`^(.+)-[0-9]{8,}$`)

// Candidates returns what excludes a pod by a label of its own: the namespace of the pod, its controller, and the workload that made the
// controller, by the names that Kubernetes gives.
func Candidates(pod *corev1.Pod) []Workload {
	out := []Workload{{Kind: KindNamespace, Namespace: pod.Namespace}}
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return out
	}

	out = append(out, Workload{Kind: owner.Kind, Namespace: pod.Namespace, Name: owner.Name})
	switch owner.Kind {
	case "ReplicaSet":
		if name, ok := strings.CutSuffix(owner.Name, "-"+pod.Labels["pod-template-hash"]); ok {
			out = append(out, Workload{Kind: "Deployment", Namespace: pod.Namespace, Name: name})
		}
	case "Job":
		if parts := jobTime.FindStringSubmatch(owner.Name); parts != nil {
			out = append(out, Workload{Kind: "CronJob", Namespace: pod.Namespace, Name: parts[1]})
		}
	}

	return out
}

// Encode returns the value of KeyWorkloads. Where the list would not fit in a ConfigMap, namespaces with many entries are excluded as a
// whole, so that a tenant with many workloads cannot displace the entries of others.
func (s Set) Encode() string {
	perNamespace := map[string]int{}
	for w := range s {
		perNamespace[w.Namespace]++
	}

	var text string
	for _, maxEntries := range []int{len(s), 1000, 100, 10, 0} {
		collapsed := Set{}
		for w := range s {
			if perNamespace[w.Namespace] > maxEntries {
				w = Workload{Kind: KindNamespace, Namespace: w.Namespace}
			}
			collapsed.Add(w)
		}

		text = collapsed.text()
		if len(text) <= maxBytes {
			break
		}
	}

	return text
}

func (s Set) text() string {
	lines := make([]string, 0, len(s))
	for w := range s {
		lines = append(lines, fmt.Sprintf("%s %s/%s\n", w.Kind, w.Namespace, w.Name))
	}

	slices.Sort(lines)
	return strings.Join(lines, "")
}

// Decode adds the entries of a value of KeyWorkloads. Lines of another form are ignored.
func (s Set) Decode(text string) {
	for line := range strings.Lines(text) {
		kind, path, ok := strings.Cut(strings.TrimSpace(line), " ")
		namespace, name, slash := strings.Cut(path, "/")
		if ok && slash && kind != "" && namespace != "" {
			s.Add(Workload{Kind: kind, Namespace: namespace, Name: name})
		}
	}
}
