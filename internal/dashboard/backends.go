// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"

	"crane.io/crane/internal/dashboard/contract"
)

// backends are the clusters of a server; there is at least one.
type backends []Backend

// named returns the cluster of a name, the first one for an empty name.
func (all backends) named(name string) (Backend, error) {
	if name == "" {
		return all[0], nil
	}

	i := slices.IndexFunc(all, func(b Backend) bool { return b.Name() == name })
	if i < 0 {
		return nil, NewResponseError(http.StatusNotFound, contract.ReasonNotFound, fmt.Sprintf("there is no cluster %q", name), "")
	}

	return all[i], nil
}

// of returns the cluster of the path of a request or of ?cluster=, the first one by default.
func (all backends) of(r *http.Request) (Backend, error) {
	return all.named(cmp.Or(r.PathValue("cluster"), r.URL.Query().Get("cluster")))
}
