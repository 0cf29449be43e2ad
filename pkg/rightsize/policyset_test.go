// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"errors"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/settings"
)

const setFile = `{"name": "ours", "cpu": {"margin": 0.1, "window": "7d"}, "memory": {"window": "7d"},
 "rules": [
  {"match": {"kinds": ["Job", "CronJob"]}, "policy": "batch"},
  {"match": {"namespaces": ["shop"], "labels": {"tier": "web"}},
   "policy": {"name": "web", "base": "latency-sensitive", "memory": {"margin": 0.2}}}]}`

func TestPolicySet(t *testing.T) {
	set, err := ParsePolicySet([]byte(setFile))
	if err != nil {
		t.Fatal(err)
	}

	class := func(name string) map[string]string { return map[string]string{ClassAnnotation: name} }
	for name, c := range map[string]struct {
		subject Subject
		want    string
		why     string
	}{
		"default":              {Subject{Namespace: "bank", Kind: "Deployment"}, "ours", ""},
		"by kind":              {Subject{Namespace: "bank", Kind: "CronJob"}, "batch", "by rule 1 of the policy file"},
		"by namespace, label":  {Subject{Namespace: "shop", Kind: "Deployment", Labels: map[string]string{"tier": "web"}}, "web", "by rule 2"},
		"label alone":          {Subject{Namespace: "bank", Kind: "Deployment", Labels: map[string]string{"tier": "web"}}, "ours", ""},
		"another label value":  {Subject{Namespace: "shop", Kind: "Deployment", Labels: map[string]string{"tier": "db"}}, "ours", ""},
		"by class":             {Subject{Namespace: "bank", Kind: "Deployment", Annotations: class("latency-sensitive")}, "latency-sensitive", "by the annotation"},
		"rule before class":    {Subject{Namespace: "bank", Kind: "Job", Annotations: class("latency-sensitive")}, "batch", "by rule 1"},
		"a class there is not": {Subject{Namespace: "bank", Kind: "Deployment", Annotations: class("urgent")}, "ours", `names no class: unknown policy "urgent"`},
	} {
		p, why := set.For(c.subject)
		if p.Name != c.want || !strings.Contains(why, c.why) || (c.why == "") != (why == "") {
			t.Errorf("%s: For = %q by %q, want %q by %q", name, p.Name, why, c.want, c.why)
		}
		if err := p.Validate(); err != nil {
			t.Errorf("%s: Validate() of the policy: %v, want no error", name, err)
		}
	}

	// The policy of the rule has a longer window than the default of the file; that of a class has no longer window.
	if got := set.Window(); got != 14*day {
		t.Errorf("Window() = %v, want %v", got, 14*day)
	}

	short := NewPolicySet(mustPolicy(t, DefaultPolicy))
	short.RequestedHistory = 36 * time.Hour
	if err := short.Each(func(p *Policy) error {
		p.CPU.Window = 2 * day
		p.Memory.Window = 2 * day
		return nil
	}); err != nil {
		t.Fatal(err)
	}

	if p, _ := short.For(Subject{Annotations: class("latency-sensitive")}); p.CPU.Window != 2*day || p.MinHistory != 36*time.Hour || p.Validate() != nil {
		t.Errorf("a class with a short history: window %v, minimum %v, %v; want 48h, 36h and a valid policy", p.CPU.Window, p.MinHistory, p.Validate())
	}

	short.IgnoreClasses = true
	if p, why := short.For(Subject{Annotations: class("batch")}); p.Name != DefaultPolicy || why != "" {
		t.Errorf("For with ignored classes = %q by %q, want %q without a reason", p.Name, why, DefaultPolicy)
	}
}

func TestParsePolicySetRefuses(t *testing.T) {
	for file, paths := range map[string][]string{
		`{"name": "a", "rules": []}`:                                                     {"rules"},
		`{"name": "a", "rules": {}}`:                                                     {"rules"},
		`{"rules": [{"match": {"kinds": ["Job"]}, "policy": "batch"}]}`:                  {"name"},
		`{"name": "a", "rules": [7]}`:                                                    {"rules[0]"},
		`{"name": "a", "rules": [{"match": {}, "policy": "batch"}]}`:                     {"rules[0].match"},
		`{"name": "a", "rules": [{"policy": "batch"}]}`:                                  {"rules[0].match"},
		`{"name": "a", "rules": [{"match": {"kinds": ["Job"]}}]}`:                        {"rules[0].policy"},
		`{"name": "a", "rules": [{"match": {"kind": ["Job"]}, "policy": "batch"}]}`:      {"rules[0].match.kind"},
		`{"name": "a", "rules": [{"match": {"kinds": [""]}, "policy": "batch"}]}`:        {"rules[0].match.kinds"},
		`{"name": "a", "rules": [{"match": {"kinds": ["Job"]}, "policy": "bulk"}]}`:      {"rules[0].policy"},
		`{"name": "a", "rules": [{"match": {"kinds": ["Job"]}, "policy": {}}]}`:          {"rules[0].policy.name"},
		`{"name": "a", "rules": [{"match": {"kinds": ["Job"]}, "policy": "a", "x": 1}]}`: {"rules[0].x"},
		`{"name": "a", "cpu": {"margin": -1}, "rules": [{"match": {"kinds": ["Job"]}, "policy": {"name": "b", "cpu": {"margin": -1, "floor": "-2"}}}]}`: {
			"cpu.margin", "rules[0].policy.cpu.floor",
		},
		`{"name": "a", "memory": {"pageCache": {"leaveOut": 2}}}`: {"memory.pageCache.leaveOut"},
		`{"name": "a", "memory": {"pageCache": {"leaveout": 1}}}`: {"memory.pageCache.leaveout"},
	} {
		_, err := ParsePolicySet([]byte(file))
		if err == nil {
			t.Errorf("ParsePolicySet(%s) succeeded, want an error", file)
			continue
		}

		got := fieldPaths(err)
		for _, path := range paths {
			if !got[path] {
				t.Errorf("ParsePolicySet(%s): error %v, want one of %s", file, err, path)
			}
		}
	}
}

// fieldPaths are the paths of all field errors in an error.
func fieldPaths(err error) map[string]bool {
	out := map[string]bool{}
	var walk func(error)
	walk = func(err error) {
		if field, ok := err.(*settings.FieldError); ok {
			out[field.Path] = true
		}

		switch e := err.(type) {
		case interface{ Unwrap() []error }:
			for _, inner := range e.Unwrap() {
				walk(inner)
			}
		case interface{ Unwrap() error }:
			walk(e.Unwrap())
		}
	}

	walk(err)
	return out
}

func FuzzParsePolicySet(f *testing.F) {
	f.Add(setFile)
	f.Add(`{"name": "a", "rules": [{"match": {"kinds": ["Job"]}, "policy": {"name": "b", "cpu": 3}}]}`)
	f.Fuzz(func(t *testing.T, file string) {
		set, err := ParsePolicySet([]byte(file))
		if err != nil {
			return
		}

		if err := set.Each(func(p *Policy) error { return errors.Join(p.Validate()) }); err != nil {
			t.Fatalf("Validate() of an accepted policy set: %v, want no error", err)
		}

		set.For(Subject{Kind: "Job"})
	})
}
