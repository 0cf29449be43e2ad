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

	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/internal/component/documents"
	"crane.io/crane/internal/component/termtext"
)

// adoptPreview is the preview of one Recommendation.
type adoptPreview struct {
	Recommendation string `json:"recommendation"`
	Target         string `json:"target"`
	Type           string `json:"type"`
	// Phase is the phase of the adoption, empty if none is running.
	Phase string `json:"phase,omitempty"`
	// Refused is the reason why no adoption starts.
	Refused string `json:"refused,omitempty"`
	// Message is the text that craned would write to status.adoption.message; Remarks refer to single pods.
	Message  string         `json:"message,omitempty"`
	Remarks  []string       `json:"remarks,omitempty"`
	Requests []adoptRequest `json:"requests"`
	// AgainAfter is the delay until craned checks again, empty if it waits for a change.
	AgainAfter string `json:"againAfter,omitempty"`
}

// adoptRequest is one request that craned would send.
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

func newAdoptPreview(p targetsnapshot.Preview) adoptPreview {
	rec := p.Recommendation
	out := adoptPreview{
		Recommendation: rec.Namespace + "/" + rec.Name,
		Type:           string(rec.Spec.Type),
		Phase:          string(p.Phase),
		Refused:        p.Refused,
		Target:         fmt.Sprintf("%s %s/%s", rec.Spec.TargetRef.Kind, rec.Spec.TargetRef.Namespace, rec.Spec.TargetRef.Name),
		Message:        p.Plan.Summary,
		Remarks:        p.Plan.Remarks,
		Requests:       []adoptRequest{},
	}

	if p.Plan.RequeueAfter > 0 {
		out.AgainAfter = p.Plan.RequeueAfter.String()
	}

	names := map[types.PatchType]string{"": "Create", types.ApplyPatchType: "Apply", types.MergePatchType: "Merge", types.StrategicMergePatchType: "StrategicMerge"}
	for _, r := range p.Requests {
		out.Requests = append(out.Requests, adoptRequest{
			Namespace:    r.Object.GetNamespace(),
			Object:       r.String(),
			Patch:        names[r.Type],
			FieldManager: r.Manager,
			Force:        r.Type == types.ApplyPatchType,
			Why:          r.Reason,
			Body:         r.Body.Object,
		})
	}

	return out
}

// writePreviews writes the previews in an output format.
func writePreviews(w io.Writer, output string, previews []targetsnapshot.Preview) error {
	views := make([]adoptPreview, 0, len(previews))
	for _, p := range previews {
		views = append(views, newAdoptPreview(p))
	}

	var out strings.Builder
	var err error
	switch output {
	case outputJSON:
		err = documents.WriteJSON(&out, map[string]any{"adoptions": views})
	case outputYAML:
		var raw []byte
		raw, err = documents.YAML(map[string]any{"adoptions": views})
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
		return fmt.Errorf("writing the preview: %w", err)
	}

	return nil
}

// describe writes the preview as text, one request per line with its reason.
func (v adoptPreview) describe(out *strings.Builder) error {
	termtext.Fprintf(out, "%s for %s (%s)", v.Recommendation, v.Target, v.Type)
	if v.Phase != "" {
		termtext.Fprintf(out, ", %s", v.Phase)
	}
	if text := cmp.Or(v.Refused, v.Message); text != "" {
		termtext.Fprintf(out, ": %s", text)
	}

	out.WriteString("\n")
	for _, r := range v.Remarks {
		termtext.Fprintf(out, "  ! %s\n", r)
	}

	// Requests are numbered, because craned sends them in this order.
	for i, r := range v.Requests {
		body, err := json.Marshal(r.Body)
		if err != nil {
			return fmt.Errorf("encoding the patch of %s: %w", r.Object, err)
		}

		method := strings.ToLower(r.Patch)
		if r.Force {
			method += " (forced)"
		}

		termtext.Fprintf(out, "  %d. %s, %s as %s: %s\n     %s\n", i+1, r.Object, method, r.FieldManager, r.Why, body)
	}

	if len(v.Requests) == 0 {
		out.WriteString("  no request to send\n")
	}

	return nil
}
