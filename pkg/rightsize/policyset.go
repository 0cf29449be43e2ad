// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"fmt"
	"slices"
	"time"
)

// ClassAnnotation on a workload names the class that it is of: latency-sensitive, batch or default.
const ClassAnnotation = "analysis.crane.io/policy-class"

// PolicySet says which policy a workload is sized by: the first rule that matches it, else the policy of the class that it
// is annotated with, else Default.
type PolicySet struct {
	Default Policy
	Rules   []PolicyRule
	// IgnoreClasses takes no heed of annotations.
	IgnoreClasses bool
	// RequestedHistory is the history that the user asked for, which the policies of classes heed; 0 where none.
	RequestedHistory time.Duration
}

// PolicyRule gives a policy to the workloads that it matches.
type PolicyRule struct {
	Match  PolicyMatch
	Policy Policy
}

// PolicyMatch selects workloads. Each list that is not empty must hold the workload's own; Labels must all be there with
// these values. An empty match is refused by ParsePolicySet: what it would select is the default's.
type PolicyMatch struct {
	Namespaces []string          `json:"namespaces,omitempty"`
	Kinds      []string          `json:"kinds,omitempty"`
	Names      []string          `json:"names,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
}

// Subject is what is known of a workload when its policy is chosen. Labels and annotations are its own, not its pods';
// a source without a Kubernetes API knows of none.
type Subject struct {
	Namespace, Kind, Name string
	Labels, Annotations   map[string]string
}

// NewPolicySet is a set for all workloads alike but for those that are annotated with a class.
func NewPolicySet(p Policy) PolicySet { return PolicySet{Default: p} }

// For returns the policy of a workload and why it is that one; why is empty for the default.
func (s PolicySet) For(w Subject) (p Policy, why string) {
	for i, r := range s.Rules {
		if r.Match.matches(w) {
			return r.Policy, fmt.Sprintf("policy %s by rule %d of the policy file", r.Policy.Name, i+1)
		}
	}
	class, given := w.Annotations[ClassAnnotation]
	if !given || s.IgnoreClasses {
		return s.Default, ""
	}
	p, err := PolicyByName(class)
	if err != nil {
		return s.Default, fmt.Sprintf("policy %s: the annotation %s names no class: %v", s.Default.Name, ClassAnnotation, err)
	}
	return s.limitHistory(p), "policy " + p.Name + " by the annotation " + ClassAnnotation
}

// limitHistory keeps a class to the history that is read.
func (s PolicySet) limitHistory(p Policy) Policy {
	longest := s.Window()
	p.CPU.Window, p.Memory.Window = min(p.CPU.Window, longest), min(p.Memory.Window, longest)
	p.Memory.OOM.Window = min(p.Memory.OOM.Window, p.Memory.Window)
	if p.MinHistory = min(p.MinHistory, longest); s.RequestedHistory > 0 {
		p.MinHistory = min(p.MinHistory, s.RequestedHistory)
	}
	return p
}

// Window is how far back any of the policies looks.
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
	in := func(list []string, v string) bool { return len(list) == 0 || slices.Contains(list, v) }
	if !in(m.Namespaces, w.Namespace) || !in(m.Kinds, w.Kind) || !in(m.Names, w.Name) {
		return false
	}
	for k, v := range m.Labels {
		if got, there := w.Labels[k]; !there || got != v {
			return false
		}
	}
	return true
}
