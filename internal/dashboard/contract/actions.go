// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package contract

// Item names a recommendation in a request. Name is Row.Name; without it (Crane is not installed) kind and workload name the target.
type Item struct {
	Cluster   string `json:"cluster"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	Kind      string `json:"kind,omitempty"`
	Workload  string `json:"workload,omitempty"`
}

// ExportRequest is the body of PathExport.
type ExportRequest struct {
	// Format is kustomize, patch, helm or csv.
	Format string `json:"format"`
	// Items are the selected rows, at most 20,000 for csv and 2,000 for the others.
	Items []Item `json:"items"`
}

// The actions.
const (
	// ActionAdopt sets adoptionType Auto.
	ActionAdopt = "adopt"
	// ActionPause stops the adoption where it is: pods keep their requests.
	ActionPause = "pause"
	// ActionResume continues a paused adoption.
	ActionResume = "resume"
	// ActionRollback ends the adoption: pods get back the requests of their template.
	ActionRollback = "rollback"
)

// ActionRequest is the body of PathAction.
type ActionRequest struct {
	// Action is adopt, pause, resume or rollback.
	Action string `json:"action"`
	// DryRun writes nothing and answers with the requests that would be sent.
	DryRun bool `json:"dryRun"`
	// Items are at most 200 rows.
	Items []Item `json:"items"`
}

// ActionResult is the answer of PathAction; the status is 200 if the request was valid, even if items failed.
type ActionResult struct {
	DryRun  bool         `json:"dryRun"`
	Results []ItemResult `json:"results"`
}

// ItemResult is the result of one item.
type ItemResult struct {
	Item Item `json:"item"`
	// OK is true if the write was accepted, or would be in a dry run.
	OK    bool   `json:"ok"`
	Error *Error `json:"error,omitempty"`
	// Message is one sentence: what was done, or what would happen next.
	Message string `json:"message,omitempty"`
	// Requests are the requests that craned would send next, in a dry run of adopt; Remarks the reasons for what it leaves.
	Requests []PlannedRequest `json:"requests,omitempty"`
	Remarks  []string         `json:"remarks,omitempty"`
}

// PlannedRequest is one request of a dry run.
type PlannedRequest struct {
	// Object is kind/name with its subresource, such as pods/web-1/resize; Patch is the body as YAML.
	Object string `json:"object"`
	Patch  string `json:"patch"`
}
