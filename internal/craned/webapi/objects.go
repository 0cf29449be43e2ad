// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package webapi

import (
	"errors"
	"fmt"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

// recommendations writes a RecommendationList; ?namespace= selects one namespace.
func (a *API) recommendations(w http.ResponseWriter, r *http.Request) error {
	var list analysisv1alpha1.RecommendationList
	return a.list(w, r, &list, client.InNamespace(r.URL.Query().Get("namespace")))
}

// rules writes a RecommendationRuleList.
func (a *API) rules(w http.ResponseWriter, r *http.Request) error {
	var list analysisv1alpha1.RecommendationRuleList
	return a.list(w, r, &list)
}

func (a *API) list(w http.ResponseWriter, r *http.Request, list client.ObjectList, options ...client.ListOption) error {
	// The response is written at once and the list is not kept, so it need not be copied from the cache.
	err := a.config.Objects.List(r.Context(), list, append(options, client.UnsafeDisableDeepCopy)...)

	var notStarted *cache.ErrCacheNotStarted
	if errors.As(err, &notStarted) {
		return errors.New("this replica has just started; repeat the request in some seconds")
	}
	if err != nil {
		return fmt.Errorf("listing: %w", err)
	}

	return writeData(w, list)
}
