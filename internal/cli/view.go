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
	"crane.io/crane/internal/kube/workloadname"
	"crane.io/crane/internal/recommendation/requestpatch"
	"crane.io/crane/internal/recommendation/sizereport"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// viewFlags select, sort and group the recommendations.
type viewFlags struct {
	workloads, kinds, only []string
	sortBy, groupBy        string

	// names are the compiled expressions of workloads, or the name of one workload.
	names []nameFilter
	// hint suggests filters that match something, as the end of an error message; filterWorkloads sets it.
	hint string
}

// nameFilter matches whole names of workloads.
type nameFilter struct {
	// text is the name or the expression as the user wrote it.
	text string
	// expression is nil if text is a name.
	expression *regexp.Regexp
}

// newNameFilter returns a filter of the names that match a regular expression.
func newNameFilter(text string) (nameFilter, error) {
	expression, err := regexp.Compile("^(?:" + text + ")$")
	return nameFilter{text, expression}, err
}

func (f nameFilter) matches(name string) bool {
	if f.expression == nil {
		return name == f.text
	}

	return f.expression.MatchString(name)
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

// byKind is the third grouping of --group-by, with byWorkload and byNamespace.
const byKind = "kind"

func sortNames() []string     { return []string{sortName, sortSaving, sortCPU, sortMemory, sortChange} }
func findingNames() []string  { return []string{onlyOver, onlyUnder, onlyMissing, onlyLearning} }
func groupingNames() []string { return []string{byWorkload, byNamespace, byKind} }

func (v *viewFlags) addFlags(fs *pflag.FlagSet) {
	fs.StringArrayVar(&v.workloads, "workload", nil, "only workloads whose whole name matches this name or regular expression; may be repeated")
	fs.StringSliceVar(&v.kinds, "kind", nil, "only workloads of these kinds, for example Deployment or deploy; may be repeated")
	fs.StringSliceVar(&v.only, "only", nil, "only containers that request more (over) or less (under) than recommended, have no request (missing) or no recommendation yet (learning); may be repeated")
	fs.StringVar(&v.sortBy, "sort", "", "order: "+strings.Join(sortNames(), ", ")+" (default: saving with -o html, otherwise name); saving, cpu and memory list the largest saving first, change the largest relative change")
	fs.StringVar(&v.groupBy, "group-by", "", "print sums by "+strings.Join(groupingNames(), ", "))
}

// complete compiles the expressions and validates the flags.
func (v *viewFlags) complete(output string) error {
	var errs []error
	for _, text := range v.workloads {
		name, err := newNameFilter(text)
		if err != nil || text == "" {
			errs = append(errs, fmt.Errorf("--workload %q: want a name or a regular expression", text))
			continue
		}

		v.names = append(v.names, name)
	}

	if v.sortBy == "" {
		v.sortBy = sortName
		if output == outputHTML {
			v.sortBy = sortSaving
		}
	}

	if !slices.Contains(sortNames(), v.sortBy) {
		errs = append(errs, fmt.Errorf("--sort %q: want one of %s", v.sortBy, strings.Join(sortNames(), ", ")))
	}

	for _, only := range v.only {
		if !slices.Contains(findingNames(), only) {
			errs = append(errs, fmt.Errorf("--only %q: want one of %s", only, strings.Join(findingNames(), ", ")))
		}
	}

	// Sorting and filters are checked in any case, grouping only if it is used.
	if v.groupBy == "" {
		return errors.Join(errs...)
	}

	if !slices.Contains(groupingNames(), v.groupBy) {
		errs = append(errs, fmt.Errorf("--group-by %q: want one of %s", v.groupBy, strings.Join(groupingNames(), ", ")))
	}
	if requestpatch.IsFormat(output) {
		errs = append(errs, fmt.Errorf("--group-by cannot be combined with --output %s", output))
	}

	return errors.Join(errs...)
}

// filterWorkloads returns the workloads that match the name and kind filters, so that no other history is read.
func (v *viewFlags) filterWorkloads(all []workload.Workload) []workload.Workload {
	matching := slices.DeleteFunc(slices.Clone(all), func(w workload.Workload) bool { return !v.matches(w.Ref) })
	if len(matching) == 0 {
		v.hint = v.suggestFilter(all)
	}

	return matching
}

// suggestFilter returns the names and kinds that resemble the filters which match no workload; empty if none does.
func (v *viewFlags) suggestFilter(all []workload.Workload) string {
	var kinds []string
	for _, w := range all {
		kinds = append(kinds, w.Kind)
	}

	for _, kind := range v.kinds {
		if !slices.ContainsFunc(kinds, func(found string) bool { return workloadname.KindMatches(kind, found) }) {
			return fmt.Sprintf(": none of %s is a %s%s", units.FormatCount(len(all), "workload"), kind, workloadname.DidYouMean(kind, kinds))
		}
	}

	for _, name := range v.names {
		if names := workloadname.Names(all); !slices.ContainsFunc(names, name.matches) {
			return fmt.Sprintf(": none of %s is called %s%s", units.FormatCount(len(all), "workload"), name.text, workloadname.DidYouMean(name.text, names))
		}
	}

	return ""
}

func (v *viewFlags) matches(ref workload.Ref) bool {
	named := func(name nameFilter) bool { return name.matches(ref.Name) }
	ofKind := func(kind string) bool { return workloadname.KindMatches(kind, ref.Kind) }
	return (len(v.names) == 0 || slices.ContainsFunc(v.names, named)) && (len(v.kinds) == 0 || slices.ContainsFunc(v.kinds, ofKind))
}

// apply returns the filtered and sorted report.
func (v *viewFlags) apply(found *sizereport.Report) *report {
	r := &report{
		Report:     found,
		groupBy:    v.groupBy,
		sortBy:     v.sortBy,
		filtered:   len(v.names)+len(v.kinds)+len(v.only) > 0,
		filterHint: v.hint,
	}

	var rows []sizereport.Item
	for _, it := range r.Items {
		if !v.matches(it.Workload.Ref) {
			continue
		}

		// Only containers with the findings are kept, and workloads with such containers.
		if len(v.only) > 0 {
			it = filterContainers(it, func(c rightsize.Recommendation) bool { return r.hasFinding(c, v.only) })
		}
		if len(v.only) == 0 || len(it.Plan.Containers) > 0 {
			rows = append(rows, it)
		}
	}

	r.Items = rows
	if key := r.sortKey(v.sortBy); key != nil {
		slices.SortStableFunc(r.Items, func(a, b sizereport.Item) int { return cmp.Compare(key(b), key(a)) })
	}

	return r
}

// filterContainers returns the item with the containers that keep accepts and the sum of their savings.
func filterContainers(it sizereport.Item, keep func(rightsize.Recommendation) bool) sizereport.Item {
	out := it
	out.Plan.Containers = nil
	out.Usage = nil
	out.Evidence = nil

	out.Savings = nil
	out.GroupSavings = nil
	sum := cost.Saving{Price: it.Saving.Price}
	for i, c := range it.Plan.Containers {
		if !keep(c) {
			if i == 0 {
				out.Plan.Pod = resource.PodRequest{} // The change of init containers belongs to the first container.
			}
			continue
		}

		out.Plan.Containers = append(out.Plan.Containers, c)
		out.Usage = append(out.Usage, it.Usage[i])
		if i < len(it.Evidence) {
			out.Evidence = append(out.Evidence, it.Evidence[i])
		}

		if i < len(it.Savings) {
			s := it.Savings[i]
			out.Savings = append(out.Savings, s)
			out.GroupSavings = append(out.GroupSavings, it.GroupSavings[i])
			sum.CPU += s.CPU
			sum.Memory += s.Memory
			sum.Hourly = sum.Hourly.Plus(s.Hourly)
			sum.NotCounted = append(sum.NotCounted, s.NotCounted...)
		}
	}

	out.Saving = sum
	return out
}

// hasFinding reports whether one of the findings applies to a resource of the container.
func (r *report) hasFinding(c rightsize.Recommendation, only []string) bool {
	for _, s := range r.resourceSizes(c) {
		difference, isComparable := s.reduction()
		for _, finding := range only {
			switch finding {
			case onlyOver:
				if isComparable && difference > 0 {
					return true
				}
			case onlyUnder:
				if isComparable && difference < 0 {
					return true
				}

			case onlyMissing:
				if s.current <= 0 && !r.FromFiles() {
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

// sortKey returns the function of the sort key, largest first, or nil for the order by name.
func (r *report) sortKey(order string) func(sizereport.Item) float64 {
	switch order {
	case sortSaving:
		return func(it sizereport.Item) float64 { return it.Saving.Hourly.Total().PerHour() }
	case sortCPU, sortMemory:
		return func(it sizereport.Item) float64 { return r.requestReduction(it, order) }
	case sortChange:
		return r.largestChange
	}

	return nil
}

// requestReduction returns the reduction of a request over all pods. For a file, which has no current request, it
// returns the recommended request.
func (r *report) requestReduction(it sizereport.Item, name string) float64 {
	sum := 0.0
	for _, c := range it.Plan.Containers {
		for _, s := range r.resourceSizes(c) {
			if string(s.resource) != name {
				continue
			}

			if difference, isComparable := s.reduction(); isComparable {
				sum += difference * float64(it.Workload.Replicas)
			} else if r.FromFiles() {
				sum += s.target
			}
		}
	}

	return sum
}

// largestChange returns the largest relative change of a request of the item, or -1 if no request has one.
func (r *report) largestChange(it sizereport.Item) float64 {
	largest := -1.0
	for _, c := range it.Plan.Containers {
		for _, s := range r.resourceSizes(c) {
			if change, ok := ratio(s.current, s.target); ok && s.status == rightsize.Ready {
				largest = max(largest, math.Abs(change))
			}
		}
	}

	return largest
}
