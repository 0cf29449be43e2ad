// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"crane.io/crane/pkg/rightsize/calibrate"
	"crane.io/crane/pkg/settings"
)

// policyFile is a policy as a file holds it: the fields that change a built-in policy.
type policyFile struct {
	Base string `json:"base"`
	Policy
}

// policySetFile is a policy file with rules.
type policySetFile struct {
	policyFile
	Rules []struct {
		Match  *PolicyMatch    `json:"match"`
		Policy json.RawMessage `json:"policy"`
	} `json:"rules"`
}

// policyName matches names of policies, which are written into tables, comments and Markdown.
var policyName = regexp.MustCompile(`^[\pL\pN][\pL\pN\pM _.,:;()/%+-]{0,99}$`)

// decode reads a document into the struct that f is part of.
func (f *policyFile) decode(data []byte, document any) (errs settings.Errors) {
	var head struct {
		Base *string
		CPU  struct{ Method *Method }
	}
	_ = json.Unmarshal(data, &head) // Fields of another type are reported below.

	name := DefaultPolicy
	if head.Base != nil {
		name = *head.Base
	}

	policy, err := PolicyByName(name)
	if err != nil {
		errs.Fail("base", name, "must be one of "+strings.Join(PolicyNames(), ", "))
		return errs
	}

	f.Policy = policy
	f.Name = ""
	if m := head.CPU.Method; m != nil {
		f.CPU.selectMethod(*m)
	}

	errs = settings.Decode(data, document)
	errs.Check(f.Name != "" || len(errs) > 0, "name", "", "must be given: it is shown with each recommendation")
	errs.Check(f.Name == "" || policyName.MatchString(f.Name), "name", f.Name, "must be at most 100 letters, digits, spaces and _.,:;()/%+-, and begin with a letter or digit")

	if len(errs) == 0 {
		errs = f.problems()
	}

	return errs
}

// selectMethod clears the fields of other methods than m, and sets the default target of Calibrated.
func (p *CPUPolicy) selectMethod(m Method) {
	if m == Percentile {
		p.Envelope = EnvelopePolicy{}
	}

	switch {
	case m != Calibrated:
		p.Target = 0
	case p.Target == 0:
		p.Target = calibrate.DefaultTarget
	}
}

// ParsePolicySet reads a policy from JSON, which becomes the default; the caller converts YAML to JSON. Unknown and repeated fields, values of another type
// and fields that contradict each other are errors. All errors are returned together, each a *settings.FieldError. Fields
// that are left out come from the built-in policy named in "base", or from the default. Example:
//
//	{"name": "web", "base": "latency-sensitive", "minHistory": "3d",
//	 "cpu":    {"method": "percentile", "percentile": 0.99, "margin": 0.15, "window": "7d", "floor": "50m",
//	            "limit": {"mode": "none"}},
//	 "memory": {"margin": 0.2, "ceiling": "8Gi", "oom": {"ratio": 1.3}},
//	 "specifications": ["0.5c1g", "1c2g"]}
//
// Durations are read by series.ParseDuration, amounts are Kubernetes quantities.
//
// Beside it, "rules" is a list of matches and policies; a policy is the name of a built-in one, or written out:
//
//	{"name": "ours", "cpu": {"margin": 0.1},
//	 "rules": [{"match": {"kinds": ["Job", "CronJob"]}, "policy": "batch"},
//	           {"match": {"namespaces": ["shop"], "labels": {"tier": "web"}},
//	            "policy": {"name": "web", "base": "latency-sensitive", "memory": {"margin": 0.2}}}]}
func ParsePolicySet(data []byte) (PolicySet, error) {
	var f policySetFile
	errs := f.decode(data, &f)
	set := PolicySet{Default: f.Policy}
	errs.Check(f.Rules == nil || len(f.Rules) > 0, "rules", "[]", "must be a list of objects with match and policy")

	for i, r := range f.Rules {
		rule, problems := parseRule(r.Match, r.Policy)
		errs.AddUnreported(problems.Below(fmt.Sprintf("rules[%d]", i)))
		set.Rules = append(set.Rules, rule)
	}

	if err := errs.Err(); err != nil {
		return PolicySet{}, err
	}

	return set, nil
}

func parseRule(match *PolicyMatch, raw json.RawMessage) (rule PolicyRule, errs settings.Errors) {
	if match == nil {
		errs.Fail("match", "", "must be given")
	} else {
		rule.Match = *match
		errs = match.problems().Below("match")
	}

	var name string
	switch {
	case raw == nil:
		errs.Fail("policy", "", "must be given")
	case json.Unmarshal(raw, &name) == nil && name != "":
		var err error
		rule.Policy, err = PolicyByName(name)
		errs.Check(err == nil, "policy", name, "must be a policy, or the name of one: "+strings.Join(PolicyNames(), ", "))
	default:
		var f policyFile
		errs = append(errs, f.decode(raw, &f).Below("policy")...)
		rule.Policy = f.Policy
	}

	return rule, errs
}

func (m PolicyMatch) problems() (errs settings.Errors) {
	errs.Check(len(m.Namespaces)+len(m.Kinds)+len(m.Names)+len(m.Labels) > 0, "", "",
		"must select something: all other workloads have the policy at the top of the file")

	for field, list := range map[string][]string{"namespaces": m.Namespaces, "kinds": m.Kinds, "names": m.Names} {
		errs.Check(!slices.Contains(list, ""), field, "", "must not contain an empty text")
	}

	return errs
}

// Specifications are the only sizes that a policy allows. In a file they are a list of texts, see ParseSpecifications.
type Specifications []Specification

// DecodeField implements settings.Field.
func (s *Specifications) DecodeField(raw json.RawMessage) string {
	var entries []string
	err := json.Unmarshal(raw, &entries)
	if err == nil && len(entries) == 0 {
		err = errors.New("no entry")
	}

	if err != nil {
		return `must be a list such as ["0.5c1g", "1c2g"]`
	}

	*s, err = ParseSpecifications(strings.Join(entries, ","))
	if err != nil {
		return err.Error()
	}

	return ""
}
