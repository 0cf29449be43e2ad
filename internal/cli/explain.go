// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"crane.io/crane/internal/kube/workload"
)

// explained finds the one workload that --explain names: by name, kind/name, namespace/name or namespace/kind/name.
// Several are an error that lists them, and none an error that lists those whose names are like it.
func explained(wanted string, all []workload.Workload) ([]workload.Workload, error) {
	var found, alike []workload.Workload
	name := wanted[strings.LastIndex(wanted, "/")+1:]
	for _, w := range all {
		switch {
		case isNamed(w.Ref, wanted):
			found = append(found, w)
		case strings.Contains(w.Name, name):
			alike = append(alike, w)
		}
	}
	switch {
	case len(found) == 1:
		return found, nil
	case len(found) > 1:
		return nil, usageError(fmt.Errorf("--explain %s: several workloads are called that; say which: %s", wanted, listRefs(found)))
	case len(alike) > 0:
		return nil, &exitError{code: exitNothing, err: fmt.Errorf("--explain %s: no workload is called that; alike are %s", wanted, listRefs(alike))}
	}
	return nil, &exitError{code: exitNothing, err: fmt.Errorf("--explain %s: no workload of %d is called that", wanted, len(all))}
}

func isNamed(ref workload.Ref, wanted string) bool {
	parts := strings.Split(wanted, "/")
	if ref.Name != parts[len(parts)-1] {
		return false
	}
	switch len(parts) {
	case 1:
		return true
	case 2:
		return ref.Namespace == parts[0] || kindMatches(parts[0], ref.Kind)
	case 3:
		return ref.Namespace == parts[0] && kindMatches(parts[1], ref.Kind)
	}
	return false
}

func listRefs(all []workload.Workload) string {
	const most = 10
	names := make([]string, 0, most+1)
	for _, w := range all {
		names = append(names, w.String())
	}
	slices.Sort(names)
	if len(names) > most {
		names = append(names[:most], fmt.Sprintf("and %d more", len(names)-most))
	}
	return strings.Join(names, ", ")
}

// narrow returns the workloads whose history is needed.
func (o *recommendOptions) narrow(all []workload.Workload) ([]workload.Workload, error) {
	all = o.view.keep(all)
	if o.explain == "" {
		return all, nil
	}
	return explained(o.explain, all)
}

// validateExplain checks --explain against the other flags.
func (o *recommendOptions) validateExplain() error {
	if o.explain == "" {
		return nil
	}
	var errs []error
	if !slices.Contains([]string{outputTable, outputJSON, outputYAML, outputHTML}, o.output) {
		errs = append(errs, fmt.Errorf("--explain has no meaning with --output %s: want %s, %s, %s or %s", o.output, outputTable, outputJSON, outputYAML, outputHTML))
	}
	if o.view.groupBy != "" || len(o.view.only) > 0 {
		errs = append(errs, errors.New("--explain is about one workload as a whole: leave --group-by and --only away"))
	}
	return errors.Join(errs...)
}
