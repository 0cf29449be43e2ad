// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/dashboard/contract"
)

// export writes the file of the selected rows, which belong to one cluster.
func (s *Server) export(w http.ResponseWriter, r *http.Request) error {
	var request contract.ExportRequest
	if err := decode(r, &request); err != nil {
		return err
	}

	if !slices.Contains([]string{"csv", "kustomize", "patch", "helm"}, request.Format) {
		return invalid("format %q: must be kustomize, patch, helm or csv", request.Format)
	}

	limit := maxPatchItems
	if request.Format == "csv" {
		limit = maxItems
	}

	if err := checkItems(len(request.Items), limit); err != nil {
		return err
	}

	name := request.Items[0].Cluster
	if slices.ContainsFunc(request.Items, func(i contract.Item) bool { return i.Cluster != name }) {
		return NewResponseError(http.StatusUnprocessableEntity, contract.ReasonInvalid, "the rows belong to several clusters", "export the rows of one cluster at a time")
	}

	b, err := s.backends.named(name)
	if err != nil {
		return err
	}

	content, media, err := b.Export(r.Context(), request.Format, request.Items)
	if err != nil {
		return err
	}

	w.Header().Set("Content-Type", media+"; charset=utf-8")
	leavePlace(r.Context())
	_, _ = w.Write(content) // The client has disconnected.
	return nil
}

func checkItems(n, maxItems int) error {
	if n == 0 || n > maxItems {
		return NewResponseError(http.StatusUnprocessableEntity, contract.ReasonInvalid, fmt.Sprintf("%d rows are selected: must be 1 to %d", n, maxItems), "select other rows")
	}

	return nil
}

// act applies an action to the selected rows and records it in the audit log.
func (s *Server) act(w http.ResponseWriter, r *http.Request) error {
	var request contract.ActionRequest
	if err := decode(r, &request); err != nil {
		return err
	}

	if !slices.Contains([]string{contract.ActionAdopt, contract.ActionPause, contract.ActionResume, contract.ActionRollback}, request.Action) {
		return invalid("action %q: must be adopt, pause, resume or rollback", request.Action)
	}

	if err := checkItems(len(request.Items), maxActions); err != nil {
		return err
	}

	out := contract.ActionResult{DryRun: request.DryRun}
	// Items of a cluster are sent together, and results keep the order of the clusters.
	var order []string
	byCluster := map[string][]contract.Item{}
	for _, item := range request.Items {
		if byCluster[item.Cluster] == nil {
			order = append(order, item.Cluster)
		}
		byCluster[item.Cluster] = append(byCluster[item.Cluster], item)
	}

	for _, name := range order {
		b, err := s.backends.named(name)
		if err != nil {
			return err
		}

		results, err := b.Act(r.Context(), request.Action, request.DryRun, byCluster[name])
		if err != nil {
			failure := FailureOf(err).Body
			for _, item := range byCluster[name] {
				results = append(results, contract.ItemResult{Item: item, Error: &failure})
			}
		}

		out.Results = append(out.Results, results...)
	}

	if !request.DryRun {
		s.audit.recordItems(r.Context(), request.Action, out.Results)
	}

	return sendValue(w, r, out)
}

// createRule creates a rule or, in a dry run, reports what it would select.
func (s *Server) createRule(w http.ResponseWriter, r *http.Request) error {
	var request contract.RuleRequest
	if err := decode(r, &request); err != nil {
		return err
	}

	if len(request.YAML) > maxRule {
		return NewResponseError(http.StatusRequestEntityTooLarge, contract.ReasonTooLarge, fmt.Sprintf("the rule exceeds %d bytes", maxRule), "split it")
	}

	b, err := s.backends.of(r)
	if err != nil {
		return err
	}

	// A failed write is part of the audit log as well.
	out, err := b.CreateRule(r.Context(), request)
	if !request.DryRun {
		s.audit.record(r.Context(), err, "action", "create rule", "cluster", b.Name(), "rule", out.Name)
	}

	if err != nil {
		return err
	}

	if request.DryRun {
		out.Rows = previewRule(r.Context(), b, out)
	}

	return sendValue(w, r, out)
}

// previewRule returns what the recommenders of a rule recommend for its targets: existing Recommendations, and what is computed from the history
// for the first targets without. A target that the person may not read is left out.
func previewRule(ctx context.Context, b Backend, result contract.RuleResult) []contract.Row {
	var out []contract.Row
	targets := map[contract.Target]bool{}
	for _, t := range result.Targets {
		targets[t] = true
	}

	targetOf := func(row contract.Row) contract.Target {
		return contract.Target{
			Cluster:   row.Cluster,
			Namespace: row.Namespace,
			Kind:      row.Kind,
			Name:      row.Workload,
		}
	}

	found := map[contract.Target]bool{}
	if list, err := b.Worklist(ctx); err == nil {
		for _, row := range list.Rows {
			if target := targetOf(row); targets[target] && slices.Contains(result.Recommenders, row.Type) {
				out = append(out, row)
				found[target] = true
			}
		}
	}

	if !slices.Contains(result.Recommenders, string(analysisv1alpha1.AnalysisTypeResource)) {
		return out
	}

	// Workloads without a Recommendation are computed, which takes time: only the first few.
	computed := 0
	for _, target := range result.Targets {
		if found[target] || computed == maxPreviews || ctx.Err() != nil {
			continue
		}

		computed++
		detail, err := b.Workload(ctx, target)
		if err != nil {
			continue
		}

		for _, row := range detail.Rows {
			if row.Type == string(analysisv1alpha1.AnalysisTypeResource) {
				out = append(out, row)
			}
		}
	}

	return out
}

// itemError returns the error of an action on one item; nil if it succeeded.
func itemError(result contract.ItemResult) error {
	if result.Error == nil {
		return nil
	}

	status := http.StatusUnprocessableEntity
	if result.Error.Reason == contract.ReasonForbidden {
		status = http.StatusForbidden
	}

	return &ResponseError{Status: status, Body: *result.Error}
}
