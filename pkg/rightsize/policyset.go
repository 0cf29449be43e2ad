// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"fmt"
	"slices"
	"time"
)

// ClassAnnotation is the annotation of workloads that names their class: latency-sensitive, batch or default.
const ClassAnnotation = "analysis.crane.io/policy-class"

// PolicySet defines the policy of each workload: that of the first matching rule, else that of the class in its annotation,
// else Default.
type PolicySet struct {
	Default Policy
	Rules   []PolicyRule
	// IgnoreClasses disables annotations.
	IgnoreClasses bool
	// RequestedHistory is the history that a user requested, which bounds the policies of classes; 0 if none.
	RequestedHistory time.Duration
}

// PolicyRule is the policy of the workloads that match.
type PolicyRule struct {
	Match  PolicyMatch
	Policy Policy
}

// PolicyMatch selects workloads. Each non-empty list must contain the value of the workload, and the workload must have all
// Labels. ParsePolicySet rejects an empty match, since the default policy applies to all other workloads.
type PolicyMatch struct {
	Namespaces []string          `json:"namespaces,omitempty"`
	Kinds      []string          `json:"kinds,omitempty"`
	Names      []string          `json:"names,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
}

// Subject holds the fields of a workload that determine its policy. Labels and annotations are its own, not those of its
// pods; sources without a Kubernetes API have none.
type Subject struct {
	Namespace, Kind, Name string
	Labels, Annotations   map[string]string
}

// NewPolicySet returns a set with one policy for all workloads without a class.
func NewPolicySet(p Policy) PolicySet { return PolicySet{Default: p} }

// For returns the policy of a workload and the reason for it; the reason is empty for the default.
func (s PolicySet) For(w Subject) (p Policy, why string) {
	for i, r := range s.Rules {
		if r.Match.matches(w) {
			return r.Policy, fmt.Sprintf("policy %s by rule %d of the policy file", r.Policy.Name, i+1)
		}
	}

	class, annotated := w.Annotations[ClassAnnotation]
	if !annotated || s.IgnoreClasses {
		return s.Default, ""
	}

	p, err := PolicyByName(class)
	if err != nil {
		return s.Default, fmt.Sprintf("policy %s: the annotation %s names no class: %v", s.Default.Name, ClassAnnotation, err)
	}

	return s.limitHistory(p), "policy " + p.Name + " by the annotation " + ClassAnnotation
}

// limitHistory limits the policy of a class to the history that is read.
func (s PolicySet) limitHistory(p Policy) Policy {
	longest := s.Window()
	p.CPU.Window = min(p.CPU.Window, longest)
	p.Memory.Window = min(p.Memory.Window, longest)
	p.Memory.OOM.Window = min(p.Memory.OOM.Window, p.Memory.Window)
	p.MinHistory = min(p.MinHistory, longest)

	if s.RequestedHistory > 0 {
		p.MinHistory = min(p.MinHistory, s.RequestedHistory)
	}

	return p
}

// Window returns the longest history of all policies.
func (s PolicySet) Window() time.Duration {
	longest := max(s.Default.CPU.Window, s.Default.Memory.Window)
	for _, r := range s.Rules {
		longest = max(longest, r.Policy.CPU.Window, r.Policy.Memory.Window)
	}

	return longest
}

// Each calls change with each policy of the set and returns the first error.
func (s *PolicySet) Each(change func(*Policy) error) error {
	if err := change(&s.Default); err != nil {
		return err
	}

	for i := range s.Rules {
		if err := change(&s.Rules[i].Policy); err != nil {
			return fmt.Errorf("rules[%d].policy: %w", i, err)
		}
	}

	return nil
}

func (m PolicyMatch) matches(w Subject) bool {
	allows := func(list []string, v string) bool { return len(list) == 0 || slices.Contains(list, v) }
	if !allows(m.Namespaces, w.Namespace) || !allows(m.Kinds, w.Kind) || !allows(m.Names, w.Name) {
		return false
	}

	for k, v := range m.Labels {
		if label, ok := w.Labels[k]; !ok || label != v {
			return false
		}
	}

	return true
}
