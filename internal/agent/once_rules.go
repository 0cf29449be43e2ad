// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"io"

	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/series"
)

// rules prints the rules and the actions they would take.
func (r *onceReport) rules(w io.Writer) {
	for _, p := range r.problems {
		fmt.Fprintln(w, "\nProblem:", p)
	}
	if len(r.policy.Rules) == 0 {
		return
	}
	r.section(w, "RULE\tMETRIC\tVALUE\tTHRESHOLD\tNOW\tIF IT LASTS\tACTION", r.ruleRows)
	fmt.Fprintln(w)
	for i, f := range r.plan.Rules {
		if f.Gap > 0 {
			fmt.Fprintf(w, "%s: to release, with a margin: %s; %s is being released, %s would be released now, %s would remain\n",
				f.Rule, formatAmount(f.Resource, f.Gap), formatAmount(f.Resource, f.PendingRelease), formatAmount(f.Resource, max(0, f.Gap-f.PendingRelease-f.Shortfall)), formatAmount(f.Resource, f.Shortfall))
		}
		if f.Reason != "" {
			fmt.Fprintf(w, "%s: %s\n", r.policy.Rules[i].Name, f.Reason)
		}
	}
	keep := "no"
	if r.plan.Avoid.Desired {
		keep = "yes"
	}
	fmt.Fprintf(w, "New pods would be kept away: %s (%s)\n", keep, r.plan.Avoid.Reason)
	r.eachAction(func(preview bool, a qos.Actions) { printActions(w, preview, a) })
}

func (r *onceReport) ruleRows(row func(...any)) {
	for i, f := range r.plan.Rules {
		rule := &r.policy.Rules[i]
		value, lasts := unknown, "nothing"
		if f.Phase != qos.Unknown {
			value = qos.FormatValue(f.Value, f.Unit)
		}
		now := string(f.Phase)
		if f.Phase == qos.Firing {
			lasts = fmt.Sprintf("fires after %d in a row", rule.TriggerCount)
			now = "above"
		}
		action := rule.Action.Name
		if rule.Preview {
			action += " (preview)"
		}
		row(f.Rule, rule.Metric, value, qos.FormatValue(f.Threshold, f.Unit), now, lasts, action)
	}
}

func printActions(w io.Writer, preview bool, a qos.Actions) {
	would := "Would"
	if preview {
		would = "In preview, would only report that it would"
	}
	for _, t := range a.Throttles {
		fmt.Fprintf(w, "%s limit %s container %s from %s to %s, which frees %s, by rule %s: %s\n",
			would, t.Pod, t.ContainerName, t.From, t.To, formatAmount(qos.CPU, float64(t.Freed)), t.Rule, t.Reason)
	}
	for _, t := range a.MemoryThrottles {
		fmt.Fprintf(w, "%s limit memory of %s container %s from %s to %s, which frees %s, by rule %s: %s\n",
			would, t.Pod, t.ContainerName, t.From, t.To, formatAmount(qos.Memory, float64(t.Freed)), t.Rule, t.Reason)
	}
	for _, e := range a.Evictions {
		fmt.Fprintf(w, "%s evict %s with a grace period of %s%s, by rule %s: %s\n", would, e.Pod, e.GracePeriod, freedText(e), e.Rule, e.Reason)
	}
}

// freedText describes what an eviction releases; empty if its rule measures no amount.
func freedText(e qos.Eviction) string {
	if e.Resource != qos.CPU && e.Resource != qos.Memory {
		return ""
	}
	return ", which frees " + formatAmount(e.Resource, e.Freed)
}

func formatAmount(of qos.Resource, v float64) string {
	if of == qos.CPU {
		return fmt.Sprintf("%.3f cores", v/1000)
	}
	return mebibytes(series.Bytes(v))
}
