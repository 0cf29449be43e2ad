// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"crane.io/crane/internal/adoption/targetsnapshot"
)

// adoptView is what a dry run says of one Recommendation.
type adoptView struct {
	Recommendation string `json:"recommendation"`
	Target         string `json:"target"`
	Type           string `json:"type"`
	// Phase is how far adoption has come, empty where nothing is adopted.
	Phase string `json:"phase,omitempty"`
	// Refused says why nothing is begun.
	Refused string `json:"refused,omitempty"`
	// Message is what craned would say in status.adoption.message, Remarks are about single pods.
	Message  string         `json:"message,omitempty"`
	Remarks  []string       `json:"remarks,omitempty"`
	Requests []adoptRequest `json:"requests"`
	// AgainAfter is when craned would look again, empty for only after a change.
	AgainAfter string `json:"againAfter,omitempty"`
}

// adoptRequest is one request that would be sent.
type adoptRequest struct {
	Namespace string `json:"namespace"`
	Object    string `json:"object"`
	// Patch is Apply, StrategicMerge or Merge.
	Patch        string         `json:"patch"`
	FieldManager string         `json:"fieldManager"`
	Force        bool           `json:"force"`
	Why          string         `json:"why"`
	Body         map[string]any `json:"body"`
}

func viewOf(p targetsnapshot.Preview) adoptView {
	rec := p.Recommendation
	out := adoptView{
		Recommendation: rec.Namespace + "/" + rec.Name, Type: string(rec.Spec.Type), Phase: string(p.Phase), Refused: p.Refused,
		Target:  fmt.Sprintf("%s %s/%s", rec.Spec.TargetRef.Kind, rec.Spec.TargetRef.Namespace, rec.Spec.TargetRef.Name),
		Message: p.Plan.Summary, Remarks: p.Plan.Remarks, Requests: []adoptRequest{},
	}
	if p.Plan.RequeueAfter > 0 {
		out.AgainAfter = p.Plan.RequeueAfter.String()
	}
	names := map[types.PatchType]string{"": "Create", types.ApplyPatchType: "Apply", types.MergePatchType: "Merge", types.StrategicMergePatchType: "StrategicMerge"}
	for _, r := range p.Requests {
		out.Requests = append(out.Requests, adoptRequest{
			Namespace: r.Object.GetNamespace(), Object: r.String(), Patch: names[r.Type], FieldManager: r.Manager,
			Force: r.Type == types.ApplyPatchType, Why: r.Reason, Body: r.Body.Object,
		})
	}
	return out
}

// writePreviews writes what a dry run has found.
func writePreviews(w io.Writer, output string, previews []targetsnapshot.Preview) error {
	views := make([]adoptView, 0, len(previews))
	for _, p := range previews {
		views = append(views, viewOf(p))
	}
	var out strings.Builder
	var err error
	switch output {
	case outputJSON:
		err = encodeJSON(&out, map[string]any{"adoptions": views})
	case outputYAML:
		var raw []byte
		raw, err = yaml.Marshal(map[string]any{"adoptions": views})
		out.Write(raw)
	default:
		for _, v := range views {
			err = cmp.Or(err, v.describe(&out))
		}
	}
	if err == nil {
		_, err = io.WriteString(w, out.String())
	}
	if err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

// describe writes a view for people: what would be sent, line by line, each with its reason.
func (v adoptView) describe(out *strings.Builder) error {
	fmt.Fprintf(out, "%s for %s (%s)", v.Recommendation, v.Target, v.Type)
	if v.Phase != "" {
		fmt.Fprintf(out, ", %s", v.Phase)
	}
	if text := cmp.Or(v.Refused, v.Message); text != "" {
		fmt.Fprintf(out, ": %s", text)
	}
	out.WriteString("\n")
	for _, r := range v.Remarks {
		fmt.Fprintf(out, "  ! %s\n", r)
	}
	for i, r := range v.Requests {
		body, err := json.Marshal(r.Body)
		if err != nil {
			return fmt.Errorf("encoding a patch of %s: %w", r.Object, err)
		}
		how := strings.ToLower(r.Patch)
		if r.Force {
			how += " by force"
		}
		fmt.Fprintf(out, "  %d. %s, %s as %s: %s\n     %s\n", i+1, r.Object, how, r.FieldManager, r.Why, body)
	}
	if len(v.Requests) == 0 {
		out.WriteString("  nothing would be sent now\n")
	}
	return nil
}
