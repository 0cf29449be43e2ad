// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
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

// ParsePolicySet reads a policy as ParsePolicy does, which becomes the default, and with it "rules", a list of matches and
// policies; a policy is a name or one written out:
//
//	{"name": "ours", "cpu": {"margin": 0.1},
//	 "rules": [{"match": {"kinds": ["Job", "CronJob"]}, "policy": "batch"},
//	           {"match": {"namespaces": ["shop"], "labels": {"tier": "web"}},
//	            "policy": {"name": "web", "base": "latency-sensitive", "memory": {"margin": 0.2}}}]}
//
// It is as strict: what is wrong is a *FieldError with the path of the field.
func ParsePolicySet(data []byte) (PolicySet, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return PolicySet{}, fmt.Errorf("policy: not a JSON object: %w", err)
	}
	raw, given := fields["rules"]
	if !given {
		p, err := ParsePolicy(data)
		return NewPolicySet(p), err
	}
	if repeated := repeatedKey(data); repeated != "" {
		return PolicySet{}, &FieldError{Path: repeated, Allowed: "is given more than once"}
	}
	delete(fields, "rules")
	rest, err := json.Marshal(fields)
	if err != nil {
		return PolicySet{}, fmt.Errorf("policy: %w", err)
	}
	var set PolicySet
	var errs []error
	if set.Default, err = ParsePolicy(rest); err != nil {
		errs = append(errs, err)
	}
	var rules []json.RawMessage
	if json.Unmarshal(raw, &rules) != nil || len(rules) == 0 {
		errs = append(errs, &FieldError{Path: "rules", Value: short(raw), Allowed: "must be a list of objects with match and policy"})
	}
	for i, raw := range rules {
		rule, err := parseRule(fmt.Sprintf("rules[%d]", i), raw)
		if err != nil {
			errs = append(errs, err)
		}
		set.Rules = append(set.Rules, rule)
	}
	if err := errors.Join(errs...); err != nil {
		return PolicySet{}, err
	}
	return set, nil
}

func parseRule(path string, raw json.RawMessage) (PolicyRule, error) {
	var rule PolicyRule
	match, policy, err := ruleFields(path, raw)
	if err != nil {
		return rule, err
	}
	if rule.Match, err = parseMatch(path+".match", match); err != nil {
		return rule, err
	}
	var name string
	if json.Unmarshal(policy, &name) == nil && name != "" {
		if rule.Policy, err = PolicyByName(name); err != nil {
			return rule, &FieldError{Path: path + ".policy", Value: name, Allowed: "must be a policy, or the name of one: " + strings.Join(PolicyNames(), ", ")}
		}
		return rule, nil
	}
	if rule.Policy, err = ParsePolicy(policy); err != nil {
		return rule, prefixPath(path+".policy", err)
	}
	return rule, nil
}

// ruleFields are the two fields of a rule.
func ruleFields(path string, raw json.RawMessage) (match, policy json.RawMessage, err error) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil || fields == nil {
		return nil, nil, &FieldError{Path: path, Value: short(raw), Allowed: "must be an object with match and policy"}
	}
	if repeated := repeatedKey(raw); repeated != "" {
		return nil, nil, &FieldError{Path: path + "." + repeated, Allowed: "is given more than once"}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if name != "match" && name != "policy" {
			return nil, nil, &FieldError{Path: path + "." + name, Value: short(fields[name]), Allowed: "unknown field; a rule has match and policy"}
		}
	}
	for _, name := range []string{"match", "policy"} {
		if _, given := fields[name]; !given {
			return nil, nil, &FieldError{Path: path + "." + name, Allowed: "must be given"}
		}
	}
	return fields["match"], fields["policy"], nil
}

func parseMatch(path string, raw json.RawMessage) (PolicyMatch, error) {
	var m PolicyMatch
	if repeated := repeatedKey(raw); repeated != "" {
		return m, &FieldError{Path: path + "." + repeated, Allowed: "is given more than once"}
	}
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&m); err != nil {
		return m, &FieldError{Path: path, Value: short(raw), Allowed: "must have lists of namespaces, kinds or names, and labels: " + err.Error()}
	}
	if len(m.Namespaces)+len(m.Kinds)+len(m.Names)+len(m.Labels) == 0 {
		return m, &FieldError{Path: path, Value: short(raw), Allowed: "must select something: what is left over has the policy at the top of the file"}
	}
	for field, list := range map[string][]string{"namespaces": m.Namespaces, "kinds": m.Kinds, "names": m.Names} {
		if slices.Contains(list, "") {
			return m, &FieldError{Path: path + "." + field, Value: short(raw), Allowed: "must not hold an empty text"}
		}
	}
	return m, nil
}

// prefixPath puts field errors under a path.
func prefixPath(path string, err error) error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		errs := make([]error, 0, 4)
		for _, e := range joined.Unwrap() {
			errs = append(errs, prefixPath(path, e))
		}
		return errors.Join(errs...)
	}
	if field, ok := errors.AsType[*FieldError](err); ok {
		return &FieldError{Path: join(path, field.Path), Value: field.Value, Allowed: field.Allowed}
	}
	return fmt.Errorf("%s: %w", path, err)
}
