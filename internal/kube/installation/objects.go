// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/component/shellquote"
)

// readiness counts objects by the reason for which they are not ready; those that are ready have none.
type readiness map[string]int

// addReadiness adds a line with the number of ready objects, the reasons of the others, and a text. It is a warning if no object is ready, or
// with advice.
func (r *statusReport) addReadiness(name string, counts readiness, text, advice string) {
	total := 0
	for _, n := range counts {
		total += n
	}

	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		if reason != "" {
			reasons = append(reasons, fmt.Sprintf("%d %s", counts[reason], reason))
		}
	}

	detail := fmt.Sprintf("%d, all ready", total)
	switch {
	case total == 0:
		r.add(name, OK, "none", "")
		return
	case len(reasons) > 0:
		detail = fmt.Sprintf("%d of %d ready; %s", counts[""], total, strings.Join(reasons, ", "))
	}

	// Advice means that somebody has to act, even if most objects are ready.
	state := OK
	if counts[""] == 0 || advice != "" {
		state = Warn
	}

	r.add(name, state, detail+text, advice)
}

// maxNamedRules bounds the names in the advice.
const maxNamedRules = 5

// describeRules returns the command that prints the conditions of rules; empty without any.
func describeRules(names []string) string {
	if len(names) == 0 {
		return ""
	}

	command := shellquote.Command([]string{"kubectl", "describe", "recommendationrules"}, names[:min(maxNamedRules, len(names))]...)
	if more := len(names) - maxNamedRules; more > 0 {
		command += fmt.Sprintf(" (and %d more)", more)
	}

	return command
}

// conditioned is a kind with conditions.
type conditioned struct {
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// readinessOf counts the objects of a list by the reason of their condition Ready.
func readinessOf(list client.ObjectList) readiness {
	out := readiness{}
	items, err := meta.ExtractList(list)
	if err != nil {
		return out
	}

	for _, item := range items {
		var o conditioned
		if err := convertObject(item, &o); err != nil {
			out["Unreadable"]++
			continue
		}

		switch c := meta.FindStatusCondition(o.Status.Conditions, "Ready"); {
		case c == nil:
			out["NotEvaluated"]++
		case c.Status == metav1.ConditionTrue:
			out[""]++
		default:
			out[c.Reason]++
		}
	}

	return out
}

// convertObject reads the fields of an object that another type has.
func convertObject(from runtime.Object, to any) error {
	content, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(content, to)
	}

	return err
}

// components returns the names of Crane's components.
func components() []string {
	return []string{"craned", "metric-adapter", "crane-scheduler", "crane-agent"}
}

// ComponentSelector selects the workloads of the components.
func ComponentSelector() labels.Selector {
	is, err := labels.NewRequirement(ComponentLabel, selection.In, components())
	if err != nil {
		return labels.Nothing()
	}

	return labels.NewSelector().Add(*is)
}
