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

// recommendations answers with a RecommendationList; ?namespace= asks for one namespace.
func (a *API) recommendations(w http.ResponseWriter, r *http.Request) error {
	var list analysisv1alpha1.RecommendationList
	return a.list(w, r, &list, client.InNamespace(r.URL.Query().Get("namespace")))
}

// rules answers with a RecommendationRuleList.
func (a *API) rules(w http.ResponseWriter, r *http.Request) error {
	var list analysisv1alpha1.RecommendationRuleList
	return a.list(w, r, &list)
}

func (a *API) list(w http.ResponseWriter, r *http.Request, list client.ObjectList, options ...client.ListOption) error {
	// The answer is written at once and nothing of it is kept: it need not be copied out of the cache.
	err := a.config.Objects.List(r.Context(), list, append(options, client.UnsafeDisableDeepCopy)...)
	var notStarted *cache.ErrCacheNotStarted
	if errors.As(err, &notStarted) {
		return errors.New("this replica has only just begun; ask again soon")
	}
	if err != nil {
		return fmt.Errorf("listing: %w", err)
	}
	return writeData(w, list)
}
