// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/kube/workloadname"
	"crane.io/crane/pkg/units"
)

// selectExplained returns the workload that --explain names as name, kind/name, namespace/name or
// namespace/kind/name. If several match, the error lists them; if none matches, it lists workloads with similar
// names.
func selectExplained(reference string, all []workload.Workload) ([]workload.Workload, error) {
	var found, similar []workload.Workload
	name := reference[strings.LastIndex(reference, "/")+1:]
	for _, w := range all {
		switch {
		case workloadname.Matches(w.Ref, reference):
			found = append(found, w)
		case strings.Contains(w.Name, name):
			similar = append(similar, w)
		}
	}

	switch {
	case len(found) == 1:
		return found, nil
	case len(found) > 1:
		return nil, usageError(fmt.Errorf("--explain %s: several workloads match, specify one of: %s", reference, workloadname.List(found)))
	case len(similar) > 0:
		return nil, &exitError{code: exitNoResult, err: fmt.Errorf("--explain %s: no workload matches; similar names: %s", reference, workloadname.List(similar))}
	}

	return nil, &exitError{code: exitNoResult, err: fmt.Errorf("--explain %s: none of %s matches%s", reference, units.FormatCount(len(all), "workload"), workloadname.DidYouMean(name, workloadname.Names(all)))}
}

// selectWorkloads returns the workloads whose history is read.
func (o *recommendOptions) selectWorkloads(all []workload.Workload) ([]workload.Workload, error) {
	all = o.view.filterWorkloads(all)
	if o.explain == "" {
		return all, nil
	}

	return selectExplained(o.explain, all)
}

// validateExplain checks --explain for conflicts with the other flags.
func (o *recommendOptions) validateExplain() error {
	if o.explain == "" {
		return nil
	}

	var errs []error
	if !slices.Contains([]string{outputTable, outputJSON, outputYAML, outputHTML}, o.output) {
		errs = append(errs, fmt.Errorf("--explain cannot be combined with --output %s: want %s, %s, %s or %s", o.output, outputTable, outputJSON, outputYAML, outputHTML))
	}
	if o.view.groupBy != "" || len(o.view.only) > 0 {
		errs = append(errs, errors.New("--explain describes a whole workload and cannot be combined with --group-by or --only"))
	}

	return errors.Join(errs...)
}
