// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"io"
	"slices"
	"strings"
	"time"

	"crane.io/crane/internal/component/documents"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/clusterstate"
	"crane.io/crane/internal/recommendation/sizereport"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/rightsize/calibrate"
	"crane.io/crane/pkg/units"
)

// jsonSchema is the version of the output schema. Adding fields keeps the version; any other change requires a new
// one.
const jsonSchema = "crane.io/recommend/v1"

// jsonReport is the output of `crane recommend -o json`. CPU is in cores, memory in bytes.
type jsonReport struct {
	Schema string `json:"schema"`
	// Time is the time of the decision: the current time, or the end of the latest file.
	Time time.Time `json:"time"`
	// Policy is the name of the policy, Window the length of its history, for example 14d.
	Policy    string         `json:"policy"`
	Window    string         `json:"window"`
	Workloads []jsonWorkload `json:"workloads"`
	Totals    jsonTotals     `json:"totals"`
	// Namespaces are the savings by namespace, Prices the prices they are based on; absent without prices.
	Namespaces []jsonNamespace `json:"namespaces,omitempty"`
	Prices     *jsonPrices     `json:"prices,omitempty"`
	// Sources names the data sources.
	Sources *jsonSources `json:"sources,omitempty"`
	// Groups are the sums of --group-by.
	Groups []jsonGroup `json:"groups,omitempty"`
}

type jsonWorkload struct {
	Namespace  string `json:"namespace,omitempty"`
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	Replicas   int32  `json:"replicas"`
	// State is Ready, Learning or NoData; Action is Patch or None for a Ready workload.
	State       string          `json:"state"`
	Action      string          `json:"action,omitempty"`
	Description string          `json:"description"`
	Containers  []jsonContainer `json:"containers"`
	// Saving is the saving of the change, absent without prices.
	Saving *jsonSaving `json:"saving,omitempty"`
}

type jsonContainer struct {
	Name string `json:"name"`
	Role string `json:"role"`
	// CPU and Memory are absent if the source does not measure them.
	CPU    *jsonResource `json:"cpu,omitempty"`
	Memory *jsonResource `json:"memory,omitempty"`
	// NodeGroups are the recommendations per node group, for a DaemonSet on heterogeneous nodes.
	NodeGroups []jsonNodeGroup `json:"nodeGroups,omitempty"`
	// Saving is the container's share of the workload's saving.
	Saving *jsonSaving `json:"saving,omitempty"`
}

type jsonResource struct {
	// Status is Ready, Learning or NoData; Message explains it.
	Status  string `json:"status"`
	Message string `json:"message"`
	// Current are the current requests and limits, Recommended the recommended ones; absent amounts are not set.
	Current     jsonAmounts  `json:"current"`
	Recommended *jsonAmounts `json:"recommended,omitempty"`
	// Change is recommended/current - 1 of the request, absent if either request is not set.
	Change *float64 `json:"change,omitempty"`
	// Reasons are the steps from the usage to the recommendation, in order; Flags are further findings.
	Reasons  []jsonReason     `json:"reasons,omitempty"`
	Flags    []rightsize.Flag `json:"flags,omitempty"`
	Evidence jsonEvidence     `json:"evidence"`
	// Calibration has the target for the time above the request, what was achieved in the replay of the past days, and the results of
	// other factors; only with a calibrated policy.
	Calibration *calibrate.Calibration `json:"calibration,omitempty"`
	// Replay is the result of the policy, of the current setting and of the formulas of other tools over the history,
	// with each day computed from the preceding days; only with --evidence.
	Replay *rightsize.Replay `json:"replay,omitempty"`
}

// jsonReason is a step from the usage to the recommendation.
type jsonReason struct {
	Code rightsize.StepCode `json:"code"`
	// Unit is cores or bytes; From is 0 if there was no previous value.
	Unit   rightsize.Unit `json:"unit"`
	From   float64        `json:"from"`
	To     float64        `json:"to"`
	Detail string         `json:"detail"`
	// Text is the step as a sentence.
	Text string `json:"text"`
}

func reasons(steps []rightsize.Step) []jsonReason {
	var out []jsonReason
	for _, s := range steps {
		// The step's own encoding would escape > as \u003e when nested.
		out = append(out, jsonReason{
			Code:   s.Code,
			Unit:   s.Unit,
			From:   s.From,
			To:     s.To,
			Detail: s.Detail,
			Text:   s.String(),
		})
	}

	return out
}

type jsonAmounts struct {
	Request *jsonAmount `json:"request,omitempty"`
	Limit   *jsonAmount `json:"limit,omitempty"`
}

// jsonAmount is an amount as a Kubernetes quantity and as a number.
type jsonAmount struct {
	Quantity string  `json:"quantity"`
	Value    float64 `json:"value"`
}

// jsonEvidence summarizes the samples of all pods over the window.
type jsonEvidence struct {
	// Days is the observed time in days; Confidence is from 0 to 1.
	Days       float64 `json:"days"`
	Confidence float64 `json:"confidence"`
	Samples    uint32  `json:"samples"`
	Mean       float64 `json:"mean"`
	P50        float64 `json:"p50"`
	P95        float64 `json:"p95"`
	P99        float64 `json:"p99"`
	Max        float64 `json:"max"`
	// Estimate is the demand before margin, bounds and rounding.
	Estimate float64 `json:"estimate"`
}

type jsonTotals struct {
	CPU    jsonTotal `json:"cpu"`
	Memory jsonTotal `json:"memory"`
	// Saving is the saving of all workloads.
	Saving *jsonSaving `json:"saving,omitempty"`
}

// jsonTotal is the sum of requests over pods, of containers with both a current and a recommended request.
type jsonTotal struct {
	Current     float64 `json:"current"`
	Recommended float64 `json:"recommended"`
}

// renderJSON encodes one workload at a time: the encoder buffers a value twice, and the encoded workloads with
// evidence can be larger than the report.
func renderJSON(w io.Writer, r *report) error {
	const noWorkloads = "\n  \"workloads\": []"
	out := r.json()
	workloads := out.Workloads

	out.Workloads = []jsonWorkload{}
	frame, err := documents.IndentJSON("", out)
	if err != nil {
		return err
	}

	before, after, found := bytes.Cut(frame, []byte(noWorkloads))
	if !found || len(workloads) == 0 {
		_, err = w.Write(append(frame, '\n'))
		return err
	}

	buffer := bufio.NewWriter(w)
	_, _ = buffer.Write(before) // The buffer keeps the first error, and Flush returns it.
	_, _ = buffer.WriteString(strings.TrimSuffix(noWorkloads, "]"))

	for i := range workloads {
		text, err := documents.IndentJSON("    ", workloads[i])
		if err != nil {
			return err
		}

		if i > 0 {
			_ = buffer.WriteByte(',')
		}

		_, _ = buffer.WriteString("\n    ")
		_, _ = buffer.Write(text)
	}

	_, _ = buffer.WriteString("\n  ]")
	_, _ = buffer.Write(append(after, '\n'))
	return buffer.Flush()
}

// json returns the report in the form of its schema.
func (r *report) json() jsonReport {
	t := r.totals()
	out := jsonReport{
		Sources:   newJSONSources(r.Sources),
		Schema:    jsonSchema,
		Time:      r.Now.UTC(),
		Policy:    r.PolicyName,
		Window:    units.FormatDuration(r.Window),
		Workloads: make([]jsonWorkload, 0, len(r.Items)),
		Totals: jsonTotals{
			CPU:    jsonTotal{Current: t.cpuNow, Recommended: t.cpuRecommended},
			Memory: jsonTotal{Current: t.memoryNow, Recommended: t.memoryRecommended},
		},
	}

	for _, it := range r.Items {
		out.Workloads = append(out.Workloads, r.jsonWorkload(it))
	}

	out.addSavings(r)
	for _, g := range r.groups() {
		out.Groups = append(out.Groups, g.json(r))
	}

	return out
}

func (r *report) jsonWorkload(it sizereport.Item) jsonWorkload {
	w := jsonWorkload{
		Namespace:   it.Workload.Namespace,
		APIVersion:  it.Workload.APIVersion,
		Kind:        it.Workload.Kind,
		Name:        it.Workload.Name,
		Replicas:    it.Workload.Replicas,
		State:       string(it.Plan.State),
		Action:      string(it.Plan.Action),
		Description: it.Plan.Description,
		Containers:  make([]jsonContainer, 0, len(it.Plan.Containers)),
	}

	for i, rec := range it.Plan.Containers {
		c, _ := it.Workload.Container(rec.Container)
		out := jsonContainer{Name: rec.Container, Role: string(c.Role), NodeGroups: newJSONNodeGroups(rec.NodeGroups)}
		if slices.Contains(r.Resources, metrics.CPU) {
			out.CPU = jsonSizing(rec.CPU, it.Usage[i].CPU,
				amounts(rec.Current.CPURequest, rec.Current.CPULimit, units.FormatCPU, 1000),
				amounts(rec.Target.CPURequest, rec.Target.CPULimit, units.FormatCPU, 1000))
		}

		if slices.Contains(r.Resources, metrics.Memory) {
			out.Memory = jsonSizing(rec.Memory, it.Usage[i].Memory,
				amounts(rec.Current.MemoryRequest, rec.Current.MemoryLimit, units.FormatMemory, 1),
				amounts(rec.Target.MemoryRequest, rec.Target.MemoryLimit, units.FormatMemory, 1))
		}

		if i < len(it.Evidence) {
			out.addReplays(it.Evidence[i])
		}
		w.Containers = append(w.Containers, out)
	}

	return w
}

func (c *jsonContainer) addReplays(e rightsize.Evidence) {
	if c.CPU != nil && e.CPU.Days > 0 {
		c.CPU.Replay = &e.CPU
	}
	if c.Memory != nil && e.Memory.Days > 0 {
		c.Memory.Replay = &e.Memory
	}
}

func jsonSizing(s rightsize.Sizing, u sizereport.UsageSummary, current, target jsonAmounts) *jsonResource {
	out := &jsonResource{
		Status:      string(s.Status),
		Message:     s.Message,
		Current:     current,
		Reasons:     reasons(s.Steps),
		Flags:       s.Flags,
		Calibration: s.Calibration,
		Evidence: jsonEvidence{
			Days:       s.Days,
			Confidence: float64(s.Confidence),
			Samples:    u.Samples,
			Mean:       u.Mean,
			P50:        u.P50,
			P95:        u.P95,
			P99:        u.P99,
			Max:        u.Max,
			Estimate:   s.Estimate,
		},
	}

	// A target that is not ready is a number without meaning.
	if s.Status != rightsize.Ready {
		return out
	}

	out.Recommended = &target
	if current.Request != nil && target.Request != nil {
		if change, ok := ratio(current.Request.Value, target.Request.Value); ok {
			out.Change = &change
		}
	}

	return out
}

func amounts[T units.MilliCPU | units.Bytes](request, limit *T, format func(T) string, perUnit float64) jsonAmounts {
	newAmount := func(v *T) *jsonAmount {
		if v == nil {
			return nil
		}

		return &jsonAmount{Quantity: format(*v), Value: float64(*v) / perUnit}
	}

	return jsonAmounts{Request: newAmount(request), Limit: newAmount(limit)}
}

// jsonSources names the data sources.
type jsonSources struct {
	// History is the address of Prometheus or the directory of files; the others are an API server,
	// kube-state-metrics or "nowhere", and absent if not needed.
	History     string `json:"history,omitempty"`
	Workloads   string `json:"workloads,omitempty"`
	Nodes       string `json:"nodes,omitempty"`
	Autoscalers string `json:"autoscalers,omitempty"`
	// Missing lists missing metrics with their impact.
	Missing []string `json:"missing,omitempty"`
}

func newJSONSources(s clusterstate.Sources) *jsonSources {
	if s.History == "" && s.Workloads == "" {
		return nil
	}

	return &jsonSources{
		History:     s.History,
		Workloads:   s.Workloads,
		Nodes:       s.Nodes,
		Autoscalers: s.Autoscalers,
		Missing:     s.Missing,
	}
}
