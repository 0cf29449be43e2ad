// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/pkg/adoption"
)

const (
	// maxLabels bounds the labels of a row.
	maxLabels = 12
	// maxMonthly and maxAmount bound what one row may add to a sum that others see: whoever writes the status of a Recommendation could
	// otherwise make sums infinite, which JSON does not have, or overflow. An amount is in milli-CPU or bytes.
	maxMonthly = 1e12
	maxAmount  = 1 << 50
)

// plausibleAmount returns an amount, nil if no workload can have it.
func plausibleAmount(amount int64) *int64 {
	if amount < -maxAmount || amount > maxAmount {
		return nil
	}

	return &amount
}

// RowOf returns the row of a Recommendation.
func RowOf(cluster string, rec *analysisv1alpha1.Recommendation) contract.Row {
	target := rec.Spec.TargetRef
	row := contract.Row{
		// The namespace of the Recommendation decides who may read the row, whatever namespace its target names.
		Cluster: cluster, Namespace: rec.Namespace, Name: rec.Name, Type: string(rec.Spec.Type),
		Rule: rec.Labels[analysisv1alpha1.LabelRuleName], Kind: target.Kind, Workload: target.Name, APIVersion: target.APIVersion,
		Labels: ownLabels(rec.Labels), Change: rec.Status.Change, Action: string(rec.Status.Action),
		AdoptionType: string(rec.Spec.AdoptionType), Created: rec.CreationTimestamp.Unix(),
	}

	if at := rec.Status.LastUpdateTime; at != nil {
		row.Updated = at.Unix()
	}
	if rec.Status.Adoption != nil {
		row.Phase = rec.Status.Adoption.Phase
	}

	row.State, row.Reason, row.Message = stateOf(rec)
	row.Now = podSize(rec.Status.CurrentInfo)
	row.Recommended = podSize(rec.Status.RecommendedInfo)

	if s := rec.Status.Savings; s != nil {
		row.SavedCPUMilli = plausibleAmount(s.CPU.MilliValue())
		row.SavedMemoryBytes = plausibleAmount(s.Memory.Value())
		if monthly, err := strconv.ParseFloat(s.Monthly, 64); err == nil && math.Abs(monthly) <= maxMonthly {
			row.SavingPerMonth = &monthly
		}
	}

	rate(&row, rec.Status.Evidence)
	return row
}

// ownLabels returns the labels of the target, without Crane's own and the hashes of templates.
func ownLabels(all map[string]string) map[string]string {
	out := map[string]string{}
	keys := make([]string, 0, len(all))
	for key := range all {
		prefix, _, _ := strings.Cut(key, "/")
		if prefix != analysisv1alpha1.GroupVersion.Group && key != "pod-template-hash" && key != "controller-revision-hash" {
			keys = append(keys, key)
		}
	}

	slices.Sort(keys)
	for _, key := range keys[:min(len(keys), maxLabels)] {
		out[key] = all[key]
	}

	return out
}

// stateOf returns the state of a Recommendation with its reason.
func stateOf(rec *analysisv1alpha1.Recommendation) (state contract.State, reason, message string) {
	is := func(kind string, status metav1.ConditionStatus) *metav1.Condition {
		if c := meta.FindStatusCondition(rec.Status.Conditions, kind); c != nil && c.Status == status {
			return c
		}

		return nil
	}

	described := func(state contract.State, c *metav1.Condition) (contract.State, string, string) {
		return state, c.Reason, c.Message
	}

	auto := rec.Spec.AdoptionType == analysisv1alpha1.AdoptionTypeAuto
	// A rollback or a stop is more urgent than what the conditions say of the number.
	if progress := rec.Status.Adoption; auto && progress != nil {
		switch adoption.Phase(progress.Phase) {
		case adoption.RollingBack, adoption.Held:
			return contract.StateRolledBack, progress.Phase, progress.Message
		case adoption.Stopped:
			return contract.StateStopped, progress.Phase, progress.Message
		}
	}

	if c := is(analysisv1alpha1.ConditionFailed, metav1.ConditionTrue); c != nil {
		return described(contract.StateFailed, c)
	}

	ready := meta.FindStatusCondition(rec.Status.Conditions, analysisv1alpha1.ConditionReady)
	if ready == nil {
		return contract.StateNoData, "NotEvaluated", "it has not been evaluated yet"
	}

	if ready.Status != metav1.ConditionTrue {
		if c := is(analysisv1alpha1.ConditionLearning, metav1.ConditionTrue); c != nil {
			return described(contract.StateLearning, c)
		}

		if ready.Reason == "NoUsage" {
			return described(contract.StateNoData, ready)
		}

		return described(contract.StateRefused, ready)
	}

	if c := is(analysisv1alpha1.ConditionApplicable, metav1.ConditionFalse); c != nil {
		return described(contract.StateRefused, c)
	}

	if auto {
		if c := is(analysisv1alpha1.ConditionAdopted, metav1.ConditionFalse); c != nil {
			return described(contract.StatePaused, c)
		}

		if p := rec.Status.Adoption; p != nil && adoption.Phase(p.Phase) == adoption.Resting {
			return contract.StateAdopted, p.Phase, p.Message
		} else if p != nil {
			return contract.StateAdopting, p.Phase, p.Message
		}

		return contract.StateAdopting, "Waiting", "craned has not started yet"
	}

	if rec.Status.Action == analysisv1alpha1.ActionNone {
		return contract.StateClear, ready.Reason, rec.Status.Description
	}

	return contract.StateReady, ready.Reason, rec.Status.Description
}

// templateInfo is the part of recommendedInfo and currentInfo with sizes.
type templateInfo struct {
	Spec struct {
		Replicas    *int64      `json:"replicas"`
		Template    podTemplate `json:"template"`
		JobTemplate struct {
			Spec struct {
				Template podTemplate `json:"template"`
			} `json:"spec"`
		} `json:"jobTemplate"`
	} `json:"spec"`
}

type podTemplate struct {
	Spec struct {
		Containers []struct {
			Resources struct {
				Requests map[string]*string `json:"requests"`
			} `json:"resources"`
		} `json:"containers"`
	} `json:"spec"`
}

// podSize returns the sums over the containers in recommendedInfo or currentInfo; nil if it has none.
func podSize(info string) *contract.Size {
	var o templateInfo
	if info == "" || json.Unmarshal([]byte(info), &o) != nil {
		return nil
	}

	out := &contract.Size{Replicas: o.Spec.Replicas}
	for _, c := range slices.Concat(o.Spec.Template.Spec.Containers, o.Spec.JobTemplate.Spec.Template.Spec.Containers) {
		for name, text := range c.Resources.Requests {
			if text == nil {
				continue
			}

			q, err := apiresource.ParseQuantity(*text)
			if err != nil {
				continue
			}

			switch name {
			case "cpu":
				out.CPUMilli = plus(out.CPUMilli, plausibleAmount(q.MilliValue()))
			case "memory":
				out.MemoryBytes = plus(out.MemoryBytes, plausibleAmount(q.Value()))
			}
		}
	}

	// A template without requests says nothing about the size.
	if *out == (contract.Size{}) {
		return nil
	}

	return out
}

// plus adds an amount to a sum; either may be nil.
func plus(sum, amount *int64) *int64 {
	if sum == nil || amount == nil {
		return cmp.Or(sum, amount)
	}

	total := *sum + *amount
	return &total
}

// rate sets the risk of a row from what is known of it. The points are stated in docs/how-to/open-the-dashboard.md.
func rate(row *contract.Row, evidence []analysisv1alpha1.CalibrationEvidence) {
	add := func(points int, reason string) {
		row.Risk = min(row.Risk+points, 100)
		row.RiskReasons = append(row.RiskReasons, reason)
	}

	if row.State == contract.StateRolledBack {
		add(50, "RolledBack")
	}

	if cut := reduction(row.Now, row.Recommended, func(s *contract.Size) *int64 { return s.MemoryBytes }); cut >= 0.5 {
		add(30, "MemoryHalved")
	} else if cut > 0 {
		add(15, "MemoryLowered")
	}

	if cut := reduction(row.Now, row.Recommended, func(s *contract.Size) *int64 { return s.CPUMilli }); cut >= 0.75 {
		add(20, "CPUQuartered")
	} else if cut > 0 {
		add(5, "CPULowered")
	}

	if cut := reduction(row.Now, row.Recommended, func(s *contract.Size) *int64 { return s.Replicas }); cut > 0 {
		add(15, "ReplicasLowered")
	}
	if row.Action == string(analysisv1alpha1.ActionDelete) {
		add(40, "Deletes")
	}

	// One container that missed its target by far is enough.
	for _, e := range evidence {
		target, err := strconv.ParseFloat(e.Target, 64)
		achieved, err2 := strconv.ParseFloat(e.Achieved, 64)
		if err == nil && err2 == nil && achieved > 2*target {
			add(20, "TargetMissed")
			break
		}
	}
}

// reduction returns the relative reduction of an amount; 0 if it grows or is unknown.
func reduction(now, after *contract.Size, field func(*contract.Size) *int64) float64 {
	if now == nil || after == nil {
		return 0
	}

	a := field(now)
	b := field(after)
	if a == nil || b == nil || *a <= 0 || *b >= *a {
		return 0
	}

	return 1 - float64(*b)/float64(*a)
}

// Rate sets the risk of a row that is not from a Recommendation.
func Rate(row *contract.Row) { rate(row, nil) }

// SortRows sorts rows by saving, the highest first and unknown ones last.
func SortRows(rows []contract.Row) {
	slices.SortStableFunc(rows, func(a, b contract.Row) int {
		return cmp.Or(cmp.Compare(saving(b), saving(a)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Workload, b.Workload))
	})
}

func saving(r contract.Row) float64 {
	return ptr.Deref(r.SavingPerMonth, math.Inf(-1))
}

// teamLabels are the labels that name a team, the most specific first.
func teamLabels() []string {
	return []string{"team", "app.kubernetes.io/team", "owner", "app.kubernetes.io/part-of"}
}

// NewWorklist returns the worklist of rows, sorted, with their labels.
func NewWorklist(rows []contract.Row, currency string, from contract.Origin) *contract.Worklist {
	SortRows(rows)
	counts := map[string]int{}
	for _, r := range rows {
		for key := range r.Labels {
			counts[key]++
		}
	}

	out := &contract.Worklist{Origin: from, Currency: currency, Rows: rows}
	for key := range counts {
		out.LabelKeys = append(out.LabelKeys, key)
	}

	slices.SortFunc(out.LabelKeys, func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
	for _, key := range teamLabels() {
		if counts[key] > 0 {
			out.TeamLabel = key
			break
		}
	}

	return out
}

// mergeWorklists returns one worklist of several clusters.
func mergeWorklists(parts []*contract.Worklist) *contract.Worklist {
	if len(parts) == 1 {
		return parts[0]
	}

	from := contract.Origin{Source: "several clusters", AsOf: math.MaxInt64}
	var rows []contract.Row
	for _, p := range parts {
		rows = append(rows, p.Rows...)
		from.AsOf = min(from.AsOf, p.AsOf)

		from.Stale = cmp.Or(from.Stale, p.Stale)
		from.Notes = append(from.Notes, p.Notes...)
		if p.Currency != parts[0].Currency {
			from.Notes = append(from.Notes, "savings of the clusters are in different currencies ("+parts[0].Currency+", "+p.Currency+"): compare them within a cluster only")
		}
	}

	return NewWorklist(rows, parts[0].Currency, from)
}

// Unix returns a time of the contract; 0 for none.
func Unix(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}

	return t.Unix()
}
