// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/rightsize"
)

// viewFlags say which of the recommendations are shown, in which order, and summed up by what.
type viewFlags struct {
	workloads, kinds, only []string
	sortBy, groupBy        string

	// names follow from workloads.
	names []*regexp.Regexp
}

// The orders of --sort.
const (
	sortName   = "name"
	sortSaving = "saving"
	sortCPU    = "cpu"
	sortMemory = "memory"
	sortChange = "change"
)

// The findings of --only.
const (
	onlyOver     = "over"
	onlyUnder    = "under"
	onlyMissing  = "missing"
	onlyLearning = "learning"
)

// byKind is a grouping of --group-by, beside byWorkload and byNamespace.
const byKind = "kind"

func sortNames() []string  { return []string{sortName, sortSaving, sortCPU, sortMemory, sortChange} }
func onlyNames() []string  { return []string{onlyOver, onlyUnder, onlyMissing, onlyLearning} }
func groupNames() []string { return []string{byWorkload, byNamespace, byKind} }

func (v *viewFlags) addFlags(fs *pflag.FlagSet) {
	fs.StringArrayVar(&v.workloads, "workload", nil, "only workloads of this name; a regular expression that the whole name matches; may be repeated")
	fs.StringSliceVar(&v.kinds, "kind", nil, "only workloads of these kinds, as Deployment or deploy; may be repeated")
	fs.StringSliceVar(&v.only, "only", nil, "only containers that request more (over) or less (under) than recommended, lack a request (missing) or a number (learning); may be repeated")
	fs.StringVar(&v.sortBy, "sort", sortName, "order: "+strings.Join(sortNames(), ", ")+"; saving, cpu and memory put what saves most first, change what moves most")
	fs.StringVar(&v.groupBy, "group-by", "", "sum up by "+strings.Join(groupNames(), ", "))
}

// complete reads the expressions and checks the words.
func (v *viewFlags) complete(output string) error {
	var errs []error
	for _, text := range v.workloads {
		name, err := regexp.Compile("^(?:" + text + ")$")
		if err != nil || text == "" {
			errs = append(errs, fmt.Errorf("--workload %q: want a name or a regular expression", text))
			continue
		}
		v.names = append(v.names, name)
	}
	if !slices.Contains(sortNames(), v.sortBy) {
		errs = append(errs, fmt.Errorf("--sort %q: want one of %s", v.sortBy, strings.Join(sortNames(), ", ")))
	}
	for _, only := range v.only {
		if !slices.Contains(onlyNames(), only) {
			errs = append(errs, fmt.Errorf("--only %q: want one of %s", only, strings.Join(onlyNames(), ", ")))
		}
	}
	if v.groupBy == "" {
		return errors.Join(errs...)
	}
	if !slices.Contains(groupNames(), v.groupBy) {
		errs = append(errs, fmt.Errorf("--group-by %q: want one of %s", v.groupBy, strings.Join(groupNames(), ", ")))
	}
	if isPatch(output) {
		errs = append(errs, fmt.Errorf("--group-by has no meaning with --output %s", output))
	}
	return errors.Join(errs...)
}

// keep returns the workloads that are asked for by name and kind: of the others no history need be read.
func (v *viewFlags) keep(all []workload.Workload) []workload.Workload {
	return slices.DeleteFunc(slices.Clone(all), func(w workload.Workload) bool { return !v.wants(w.Ref) })
}

func (v *viewFlags) wants(ref workload.Ref) bool {
	named := func(name *regexp.Regexp) bool { return name.MatchString(ref.Name) }
	ofKind := func(kind string) bool { return kindMatches(kind, ref.Kind) }
	return (len(v.names) == 0 || slices.ContainsFunc(v.names, named)) && (len(v.kinds) == 0 || slices.ContainsFunc(v.kinds, ofKind))
}

// kindMatches takes kubectl's ways to write a kind: in any case, in the plural, or short.
func kindMatches(written, kind string) bool {
	written, kind = strings.ToLower(written), strings.ToLower(kind)
	return written == kind || written == kind+"s" || shortKinds()[written] == kind
}

// shortKinds are kubectl's short names of kinds.
func shortKinds() map[string]string {
	return map[string]string{
		"deploy": "deployment", "sts": "statefulset", "ds": "daemonset", "cj": "cronjob", "rs": "replicaset",
		"rc": "replicationcontroller", "po": "pod", "ro": "rollout",
	}
}

// apply narrows and orders a report.
func (v *viewFlags) apply(r *report) {
	r.groupBy = v.groupBy
	r.filtered = len(v.names)+len(v.kinds)+len(v.only) > 0
	var kept []item
	for _, it := range r.items {
		if !v.wants(it.workload.Ref) {
			continue
		}
		if len(v.only) > 0 {
			it = it.where(func(c rightsize.Recommendation) bool { return r.found(c, v.only) })
		}
		if len(v.only) == 0 || len(it.plan.Containers) > 0 {
			kept = append(kept, it)
		}
	}
	r.items = kept
	if key := r.sortKey(v.sortBy); key != nil {
		slices.SortStableFunc(r.items, func(a, b item) int { return cmp.Compare(key(b), key(a)) })
	}
}

// where leaves out the containers that want does not take, with what they save.
func (it item) where(want func(rightsize.Recommendation) bool) item {
	out := it
	out.plan.Containers, out.use, out.evidence, out.savings = nil, nil, nil, nil
	sum := cost.Saving{Price: it.saving.Price}
	for i, c := range it.plan.Containers {
		if !want(c) {
			continue
		}
		out.plan.Containers = append(out.plan.Containers, c)
		out.use = append(out.use, it.use[i])
		if i < len(it.evidence) {
			out.evidence = append(out.evidence, it.evidence[i])
		}
		if i < len(it.savings) {
			s := it.savings[i]
			out.savings = append(out.savings, s)
			sum.CPU, sum.Memory, sum.Hourly, sum.NotCounted = sum.CPU+s.CPU, sum.Memory+s.Memory, sum.Hourly.Plus(s.Hourly), append(sum.NotCounted, s.NotCounted...)
		}
	}
	out.saving = sum
	return out
}

// found reports whether one of the findings holds for a resource of the container.
func (r *report) found(c rightsize.Recommendation, only []string) bool {
	for _, s := range r.sizes(c) {
		difference, known := s.difference()
		for _, finding := range only {
			switch finding {
			case onlyOver:
				if known && difference > 0 {
					return true
				}
			case onlyUnder:
				if known && difference < 0 {
					return true
				}
			case onlyMissing:
				if s.now <= 0 && !r.fromFiles() {
					return true
				}
			case onlyLearning:
				if s.status != rightsize.Ready {
					return true
				}
			}
		}
	}
	return false
}

// sortKey returns what is larger for what comes first; nil for the order of the names.
func (r *report) sortKey(by string) func(item) float64 {
	switch by {
	case sortSaving:
		return func(it item) float64 {
			if r.prices == nil {
				return 0
			}
			return it.saving.Hourly.Total().PerHour()
		}
	case sortCPU, sortMemory:
		return func(it item) float64 { return r.freed(it, by) }
	case sortChange:
		return r.largestChange
	}
	return nil
}

// freed is what the workload requests less of a resource, over all pods. Of a file, which requests nothing today, it is
// the request itself.
func (r *report) freed(it item, name string) float64 {
	sum := 0.0
	for _, c := range it.plan.Containers {
		for _, s := range r.sizes(c) {
			if string(s.resource) != name {
				continue
			}
			if difference, known := s.difference(); known {
				sum += difference * float64(it.workload.Replicas)
			} else if r.fromFiles() {
				sum += s.target
			}
		}
	}
	return sum
}

// largestChange is by how much the request of one container moves at most, up or down; a new request has no ratio and
// comes after all that have one.
func (r *report) largestChange(it item) float64 {
	most := -1.0
	for _, c := range it.plan.Containers {
		for _, s := range r.sizes(c) {
			if change, ok := ratio(s.now, s.target); ok && s.status == rightsize.Ready {
				most = max(most, math.Abs(change))
			}
		}
	}
	return most
}
