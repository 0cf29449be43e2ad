// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/adoptionpreview"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/internal/component/documents"
	"crane.io/crane/internal/component/texttable"
	"crane.io/crane/internal/dashboard"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/internal/recommendation/requestpatch"
	"crane.io/crane/internal/recommendation/sizereport"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/rightsize"
)

// actionView changes and exports the rows of the worklist.
type actionView struct {
	*viewAccess
	worklist *worklistView
}

// Act implements dashboard.Backend. Writes carry the rights of the kubeconfig; one that fails does not stop the others.
func (v *actionView) Act(ctx context.Context, action string, dryRun bool, items []contract.Item) ([]contract.ItemResult, error) {
	if v.fromFiles() {
		return nil, dashboard.NotServed("files have no workload to change", "")
	}

	c, err := v.Personal.ObjectClient()
	if err != nil {
		return nil, err
	}

	var out []contract.ItemResult
	for _, item := range items {
		result := contract.ItemResult{Item: item}
		if err := v.actOn(ctx, c, action, dryRun, &result); err != nil {
			failure := dashboard.FailureOf(err).Body
			result.Error = &failure
		}

		// The result of each item is separate: one failure does not stop the others.
		result.OK = result.Error == nil
		out = append(out, result)
	}

	if !dryRun {
		v.worklist.objects.Expire()
	}

	return out, nil
}

func (v *actionView) actOn(ctx context.Context, c client.Client, action string, dryRun bool, result *contract.ItemResult) error {
	rec := &analysisv1alpha1.Recommendation{}
	if result.Item.Name == "" || result.Item.Namespace == "" {
		return dashboard.NotServed("Crane is not installed in this cluster, so nothing can be adopted", "export a patch and apply it, or install Crane")
	}

	if err := c.Get(ctx, client.ObjectKey{Namespace: result.Item.Namespace, Name: result.Item.Name}, rec); err != nil {
		return fmt.Errorf("recommendation %s/%s: %w", result.Item.Namespace, result.Item.Name, err)
	}

	if targetsnapshot.StateAnnotations()[rec.Spec.Type] == "" {
		return dashboard.NewResponseError(http.StatusUnprocessableEntity, contract.ReasonInvalid, fmt.Sprintf("recommendations of type %s cannot be adopted", rec.Spec.Type), "export its patch")
	}

	var options []client.PatchOption
	if dryRun {
		options = append(options, client.DryRunAll)
	}

	options = append(options, client.FieldOwner("crane"))
	switch action {
	case contract.ActionAdopt:
		if dryRun {
			return v.previewAdoption(ctx, c, rec, result)
		}

		result.Message = "craned applies the recommendation in steps"
		return setAdoptionType(ctx, c, rec, analysisv1alpha1.AdoptionTypeAuto, options)

	case contract.ActionRollback:
		result.Message = "craned restores the requests that the pods had before"
		return setAdoptionType(ctx, c, rec, analysisv1alpha1.AdoptionTypeStatusAndAnnotation, options)
	case contract.ActionPause:
		result.Message = "pods keep their requests; new pods follow their template"
		return setAdoptionLabel(ctx, c, rec, analysisv1alpha1.LabelAdoptionOff, options)
	}

	result.Message = "the adoption continues"
	return setAdoptionLabel(ctx, c, rec, nil, options)
}

// setAdoptionType patches the adoption type; the patch requires the resource version that was read.
func setAdoptionType(ctx context.Context, c client.Client, rec *analysisv1alpha1.Recommendation, to analysisv1alpha1.AdoptionType, options []client.PatchOption) error {
	before := rec.DeepCopy()
	rec.Spec.AdoptionType = to
	if err := c.Patch(ctx, rec, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), options...); err != nil {
		return fmt.Errorf("recommendation %s/%s: %w", rec.Namespace, rec.Name, err)
	}

	return nil
}

// setAdoptionLabel sets the label of a workload that disables its adoption; nil removes it.
func setAdoptionLabel(ctx context.Context, c client.Client, rec *analysisv1alpha1.Recommendation, value any, options []client.PatchOption) error {
	ref := rec.Spec.TargetRef
	kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)

	// Who writes the Recommendation chooses the target, and the API server ignores the namespace of a cluster-scoped one: a click
	// would label a Node or a Namespace with the rights of the person.
	if _, ok := targetsnapshot.SupportedKind(kind.Group, kind.Kind); !ok {
		return fmt.Errorf("%s %s/%s: pods of this kind are not adopted", ref.Kind, rec.Namespace, ref.Name)
	}

	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(rec.Namespace)
	o.SetName(ref.Name)

	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{analysisv1alpha1.LabelAdoption: value}}})
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}

	if err := c.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch), options...); err != nil {
		return fmt.Errorf("%s %s/%s: %w", ref.Kind, rec.Namespace, ref.Name, err)
	}

	return nil
}

// previewAdoption adds the requests that craned would send next.
func (v *actionView) previewAdoption(ctx context.Context, c client.Client, rec *analysisv1alpha1.Recommendation, result *contract.ItemResult) error {
	var list analysisv1alpha1.RecommendationList
	if err := c.List(ctx, &list, client.InNamespace(rec.Namespace)); err != nil {
		return fmt.Errorf("listing recommendations: %w", err)
	}

	var notes bytes.Buffer
	reader := adoptionpreview.Reader{
		Client:          c,
		CranedNamespace: v.CranedNamespace,
		Adoption:        targetsnapshot.NewOptions(),
		Notes:           &notes,
	}

	previews, err := reader.Preview(ctx, []analysisv1alpha1.Recommendation{*rec}, list.Items)
	if err != nil {
		return err
	}

	// What the preview could not read is a remark of this item.
	for line := range bytes.Lines(notes.Bytes()) {
		result.Remarks = append(result.Remarks, string(bytes.TrimSpace(line)))
	}

	for _, p := range previews {
		if p.Refused != "" {
			return dashboard.NewResponseError(http.StatusUnprocessableEntity, contract.ReasonInvalid, p.Refused, "")
		}

		result.Message = p.Plan.Summary
		result.Remarks = append(result.Remarks, p.Plan.Remarks...)
		for _, r := range p.Requests {
			body, err := documents.YAML(r.Body.Object)
			if err != nil {
				return fmt.Errorf("encoding a request: %w", err)
			}

			result.Requests = append(result.Requests, contract.PlannedRequest{Object: r.String(), Patch: string(body)})
		}
	}

	return nil
}

// Export implements dashboard.Backend.
func (v *actionView) Export(ctx context.Context, format string, items []contract.Item) ([]byte, string, error) {
	list, err := v.worklist.Worklist(ctx)
	if err != nil {
		return nil, "", err
	}

	wanted := map[contract.Item]bool{}
	for _, i := range items {
		wanted[i] = true
	}

	var rows []contract.Row
	for _, r := range list.Rows {
		if wanted[contract.Item{Cluster: r.Cluster, Namespace: r.Namespace, Name: r.Name}] && r.Name != "" ||
			wanted[contract.Item{
				Cluster:   r.Cluster,
				Namespace: r.Namespace,
				Kind:      r.Kind,
				Workload:  r.Workload,
			}] {
			rows = append(rows, r)
		}
	}

	if len(rows) == 0 {
		return nil, "", dashboard.NewResponseError(http.StatusNotFound, contract.ReasonNotFound, "the selected rows do not exist any more", "reload the worklist")
	}

	if format == "csv" {
		content, err := rowsCSV(rows, list.Currency)
		return content, "text/csv", err
	}

	r, err := v.reportOfRows(ctx, rows)
	if err != nil {
		return nil, "", err
	}

	var out, notes bytes.Buffer
	render := map[string]func(out, notes io.Writer, r *sizereport.Report) error{
		"kustomize": requestpatch.WriteKustomize, "patch": requestpatch.WriteStrategicMerge, "helm": requestpatch.WriteHelmValues,
	}[format]

	if err := render(&out, &notes, r); err != nil {
		return nil, "", fmt.Errorf("exporting %s: %w", format, err)
	}

	// Skipped workloads become comments at the top of the file.
	var content []byte
	for line := range bytes.Lines(notes.Bytes()) {
		content = append(append(content, "# "...), line...)
	}

	return append(content, out.Bytes()...), "text/plain", nil
}

// rowsCSV writes rows; texts that a spreadsheet would compute are escaped.
func rowsCSV(rows []contract.Row, currency string) ([]byte, error) {
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	lines := [][]string{{
		"cluster", "namespace", "kind", "workload", "type", "state", "change", "cpu_now_milli", "cpu_recommended_milli", "memory_now_bytes",
		"memory_recommended_bytes", "replicas_now", "replicas_recommended", "saving_per_month", "currency", "risk", "rule", "recommendation",
	}}

	// Unknown amounts are empty cells, not 0.
	number := func(s *contract.Size, field func(*contract.Size) *int64) string {
		if s == nil || field(s) == nil {
			return ""
		}

		return strconv.FormatInt(*field(s), 10)
	}

	cpu := func(s *contract.Size) *int64 { return s.CPUMilli }
	memory := func(s *contract.Size) *int64 { return s.MemoryBytes }
	replicas := func(s *contract.Size) *int64 { return s.Replicas }
	for _, r := range rows {
		saving := ""
		if r.SavingPerMonth != nil {
			saving = strconv.FormatFloat(*r.SavingPerMonth, 'f', 2, 64)
		}

		lines = append(lines, texttable.EscapeCells([]string{
			r.Cluster, r.Namespace, r.Kind, r.Workload, r.Type, string(r.State), r.Change,
			number(r.Now, cpu), number(r.Recommended, cpu), number(r.Now, memory), number(r.Recommended, memory),
			number(r.Now, replicas), number(r.Recommended, replicas), saving, currency, strconv.Itoa(r.Risk), r.Rule, r.Name,
		}))
	}

	if err := w.WriteAll(lines); err != nil {
		return nil, fmt.Errorf("writing CSV: %w", err)
	}

	return out.Bytes(), nil
}

// reportOfRows returns a report of the rows' workloads with the recommended sizes of their Recommendations, or with those that the dashboard
// computed.
func (v *actionView) reportOfRows(ctx context.Context, rows []contract.Row) (*sizereport.Report, error) {
	if rows[0].Name == "" {
		found, _, _, err := v.worklist.report.Get(ctx)
		if err != nil {
			return nil, err
		}

		out := *found
		out.Items = slices.DeleteFunc(slices.Clone(found.Items), func(it sizereport.Item) bool {
			return !slices.ContainsFunc(rows, func(r contract.Row) bool {
				return r.Namespace == it.Workload.Namespace && r.Kind == it.Workload.Kind && r.Workload == it.Workload.Name
			})
		})

		return &out, nil
	}

	lister, _, err := v.Personal.Lister()
	if err != nil {
		return nil, err
	}

	c, err := v.Personal.ObjectClient()
	if err != nil {
		return nil, err
	}

	out := (&sizereport.Collector{Policies: v.Policies, HistoryLength: v.Policies.Window()}).NewReport(v.Clock.Now())
	for _, row := range rows {
		rec := &analysisv1alpha1.Recommendation{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: row.Namespace, Name: row.Name}, rec); err != nil {
			return nil, fmt.Errorf("recommendation %s/%s: %w", row.Namespace, row.Name, err)
		}

		size, err := targetsnapshot.DesiredSize(rec)
		if err != nil || len(size.Containers) == 0 {
			continue // A number of replicas or a proposal has no patch of requests.
		}

		w, err := lister.Get(ctx, workload.KindOf(row.APIVersion, row.Kind), client.ObjectKey{Namespace: row.Namespace, Name: row.Workload})
		if err != nil {
			return nil, fmt.Errorf("%s %s/%s: %w", row.Kind, row.Namespace, row.Workload, err)
		}

		out.Items = append(out.Items, itemOf(w, size))
	}

	if len(out.Items) == 0 {
		return nil, dashboard.NewResponseError(http.StatusUnprocessableEntity, contract.ReasonInvalid, "none of the selected rows changes requests", "select recommendations of the type Resource")
	}

	return out, nil
}

// itemOf returns the item of a workload with recommended sizes.
func itemOf(w workload.Workload, size adoption.Size) sizereport.Item {
	it := sizereport.Item{Workload: w}
	it.Plan.State, it.Plan.Action = recommend.Ready, recommend.Patch
	for _, now := range w.Containers {
		target, ok := size.Containers[now.Name]
		if !ok {
			continue
		}

		rec := rightsize.Recommendation{Container: now.Name, Current: profile.CurrentResources(now), Target: target}
		if target.CPURequest != nil {
			rec.CPU.Status = rightsize.Ready
		}
		if target.MemoryRequest != nil {
			rec.Memory.Status = rightsize.Ready
		}

		it.Plan.Containers = append(it.Plan.Containers, rec)
	}

	return it
}
