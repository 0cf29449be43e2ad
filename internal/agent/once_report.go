// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"crane.io/crane/internal/agent/features"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/internal/agent/topology"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
)

// jsonSchema names the output format. Fields may be added under the same name; any other change needs a new one.
const jsonSchema = "crane.io/agent/v1"

// onceReport holds a snapshot and what the rules would do.
type onceReport struct {
	at          time.Time
	node        string
	features    []features.Feature
	zones       topology.Summary
	snapshot    *observe.Snapshot
	observation *qos.Observation
	policy      qos.Policy
	plan        qos.Plan
	problems    []string
	notes       []string
}

// jsonReport is the output of -o json. CPU is in cores, memory in bytes, shares are from 0 to 1; unknown values are absent.
type jsonReport struct {
	Schema          string             `json:"schema"`
	Time            time.Time          `json:"time"`
	Node            string             `json:"node"`
	Features        []features.Feature `json:"features"`
	CPUs            *int               `json:"cpus,omitempty"`
	UsedCPU         *float64           `json:"usedCpu,omitempty"`
	Memory          *int64             `json:"memory,omitempty"`
	UsedMemory      *int64             `json:"usedMemory,omitempty"`
	Load            *host.Load         `json:"load,omitempty"`
	Pressure        jsonPressures      `json:"pressure"`
	Topology        topology.Summary   `json:"topology"`
	Disks           []jsonDisk         `json:"disks"`
	Interfaces      []jsonInterface    `json:"interfaces"`
	Pods            []jsonPod          `json:"pods"`
	Rules           []jsonRule         `json:"rules"`
	Avoid           jsonAvoid          `json:"keepNewPodsAway"`
	Throttles       []jsonThrottle     `json:"throttles"`
	MemoryThrottles []jsonMemory       `json:"memoryThrottles"`
	Evictions       []jsonEviction     `json:"evictions"`
	Problems        map[string]string  `json:"problems,omitempty"`
	RuleTrouble     []string           `json:"ruleProblems,omitempty"`
	Notes           []string           `json:"notes,omitempty"`
}

type jsonPressure struct {
	SomeAvg10 float64 `json:"someAvg10"`
	SomeAvg60 float64 `json:"someAvg60"`
	FullAvg10 float64 `json:"fullAvg10"`
	FullAvg60 float64 `json:"fullAvg60"`
}

type jsonPressures map[string]jsonPressure

type jsonDisk struct {
	Name       string  `json:"name"`
	ReadBytes  float64 `json:"readBytesPerSecond"`
	WriteBytes float64 `json:"writeBytesPerSecond"`
	Reads      float64 `json:"readsPerSecond"`
	Writes     float64 `json:"writesPerSecond"`
	Busy       float64 `json:"busy"`
}

type jsonInterface struct {
	Name     string  `json:"name"`
	Received float64 `json:"receivedBytesPerSecond"`
	Sent     float64 `json:"sentBytesPerSecond"`
}

type jsonPod struct {
	UID        string        `json:"uid"`
	Namespace  string        `json:"namespace,omitempty"`
	Name       string        `json:"name,omitempty"`
	Class      string        `json:"class"`
	UsedCPU    *float64      `json:"usedCpu,omitempty"`
	Throttled  *float64      `json:"throttled,omitempty"`
	WorkingSet *int64        `json:"workingSet,omitempty"`
	Limit      *float64      `json:"cpuLimit,omitempty"`
	Allowed    []string      `json:"allowedActions,omitempty"`
	Pressure   jsonPressures `json:"pressure,omitempty"`
}

type jsonRule struct {
	Rule    string   `json:"rule"`
	Metric  string   `json:"metric"`
	Phase   string   `json:"phase"`
	Value   *float64 `json:"value,omitempty"`
	Above   float64  `json:"above"`
	Unit    string   `json:"unit"`
	Needed  int      `json:"neededInARow"`
	Action  string   `json:"action"`
	Gap     float64  `json:"gap,omitempty"`
	Going   float64  `json:"going,omitempty"`
	Short   float64  `json:"short,omitempty"`
	Why     string   `json:"why,omitempty"`
	Preview bool     `json:"preview,omitempty"`
}

type jsonAvoid struct {
	Wanted bool   `json:"wanted"`
	Why    string `json:"why"`
}

type jsonThrottle struct {
	Rule      string  `json:"rule"`
	Preview   bool    `json:"preview,omitempty"`
	Pod       string  `json:"pod"`
	Container string  `json:"container"`
	From      string  `json:"from"`
	To        float64 `json:"toCores"`
	Frees     float64 `json:"freesCores"`
	Why       string  `json:"why"`
}

// jsonMemory is a change of a container's memory.high.
type jsonMemory struct {
	Rule      string `json:"rule"`
	Preview   bool   `json:"preview,omitempty"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
	From      string `json:"from"`
	To        int64  `json:"toBytes"`
	Frees     int64  `json:"freesBytes"`
	Reclaim   int64  `json:"reclaimBytes,omitempty"`
	Why       string `json:"why"`
}

type jsonEviction struct {
	Rule    string   `json:"rule"`
	Preview bool     `json:"preview,omitempty"`
	Pod     string   `json:"pod"`
	Grace   *float64 `json:"graceSeconds,omitempty"`
	Frees   float64  `json:"frees"`
	Of      string   `json:"of"`
	By      string   `json:"orderedBy"`
	Why     string   `json:"why"`
}

func (r *onceReport) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")

	if err := enc.Encode(r.json()); err != nil {
		return fmt.Errorf("printing: %w", err)
	}

	return nil
}

func (r *onceReport) json() jsonReport {
	n := &r.snapshot.Node
	// Empty lists are not null, so that scripts can iterate over them.
	out := jsonReport{
		Schema:      jsonSchema,
		Time:        r.at,
		Node:        r.node,
		Features:    r.features,
		Topology:    r.zones,
		Pressure:    pressuresOf(n.Pressure),
		Problems:    r.snapshot.Problems,
		RuleTrouble: r.problems,
		Notes:       r.notes,
		Avoid:       jsonAvoid{r.plan.Avoid.Desired, r.plan.Avoid.Reason},
		Disks:       []jsonDisk{},
		Interfaces:  []jsonInterface{},
		Pods:        []jsonPod{},
		Rules:       []jsonRule{},
		Throttles:   []jsonThrottle{},
		Evictions:   []jsonEviction{},
	}

	if n.CPUs.OK {
		out.CPUs = &n.CPUs.Value
	}
	if n.UsedCPU.OK {
		out.UsedCPU = new(float64(n.UsedCPU.Value) / 1000)
	}

	if m := n.Memory; m.OK {
		out.Memory = new(int64(m.Value.Total))
		out.UsedMemory = new(int64(m.Value.Total - m.Value.Available))
	}

	if n.Load.OK {
		out.Load = &n.Load.Value
	}

	for i := range r.snapshot.Disks {
		if d := &r.snapshot.Disks[i]; d.Rate.OK {
			v := d.Rate.Value
			out.Disks = append(out.Disks, jsonDisk{d.Name, v.ReadBytes, v.WriteBytes, v.Reads, v.Writes, float64(v.Busy)})
		}
	}

	for i := range r.snapshot.Interfaces {
		if f := &r.snapshot.Interfaces[i]; f.Rate.OK {
			out.Interfaces = append(out.Interfaces, jsonInterface{f.Name, f.Rate.Value.ReceivedBytes, f.Rate.Value.SentBytes})
		}
	}

	for i := range r.snapshot.Pods {
		out.Pods = append(out.Pods, podOf(&r.snapshot.Pods[i], &r.observation.Pods[i]))
	}

	r.addRules(&out)
	return out
}

func podOf(measured *observe.Pod, pod *qos.Pod) jsonPod {
	p := jsonPod{
		UID:       measured.UID,
		Namespace: pod.Namespace,
		Name:      pod.Name,
		Class:     string(pod.Class),
		Allowed:   pod.Allowed,
		Pressure:  pressuresOf(measured.Pressure),
	}

	if measured.UsedCPU.OK {
		p.UsedCPU = new(float64(measured.UsedCPU.Value) / 1000)
	}

	if measured.Throttled.OK {
		p.Throttled = new(float64(measured.Throttled.Value))
	}

	if measured.Memory.OK {
		p.WorkingSet = new(int64(measured.Memory.Value.WorkingSet))
	}

	if measured.Limit.OK && !measured.Limit.Value.Unlimited() {
		p.Limit = new(measured.Limit.Value.Cores())
	}

	return p
}

func pressuresOf(p observe.Pressures) jsonPressures {
	out := jsonPressures{}
	p.Each(func(resource string, v host.Pressure) {
		out[resource] = jsonPressure{v.Some.Avg10 / 100, v.Some.Avg60 / 100, v.Full.Avg10 / 100, v.Full.Avg60 / 100}
	})

	return out
}

func (r *onceReport) addRules(out *jsonReport) {
	for i, f := range r.plan.Rules {
		rule := jsonRule{
			Rule:    f.Rule,
			Metric:  r.policy.Rules[i].Metric,
			Phase:   string(f.Phase),
			Above:   f.Threshold,
			Unit:    f.Unit,
			Needed:  r.policy.Rules[i].TriggerCount,
			Action:  r.policy.Rules[i].Action.Name,
			Gap:     f.Gap,
			Going:   f.PendingRelease,
			Short:   f.Shortfall,
			Why:     f.Reason,
			Preview: f.Preview,
		}

		if f.Phase != qos.Unknown {
			rule.Value = &f.Value
		}
		out.Rules = append(out.Rules, rule)
	}

	// Amounts of CPU are millicores in plans and cores in the output.
	r.eachAction(func(preview bool, a qos.Actions) {
		for _, t := range a.MemoryThrottles {
			out.MemoryThrottles = append(out.MemoryThrottles, jsonMemory{t.Rule, preview, t.Pod.String(), t.ContainerName, t.From.String(), int64(t.To), int64(t.Freed), int64(t.Reclaim), t.Reason})
		}

		for _, t := range a.Throttles {
			out.Throttles = append(out.Throttles, jsonThrottle{t.Rule, preview, t.Pod.String(), t.ContainerName, t.From.String(), float64(t.To) / 1000, float64(t.Freed) / 1000, t.Reason})
		}

		for _, e := range a.Evictions {
			j := jsonEviction{
				Rule:    e.Rule,
				Preview: preview,
				Pod:     e.Pod.String(),
				Frees:   e.Freed,
				Of:      string(e.Resource),
				By:      string(e.Criterion),
				Why:     e.Reason,
			}

			if e.Resource == units.CPU {
				j.Frees /= 1000
			}
			if e.GraceOverride != nil {
				j.Grace = new(e.GraceOverride.Seconds())
			}

			out.Evictions = append(out.Evictions, j)
		}
	})
}

// eachAction calls f for the plan and for the preview of each rule.
func (r *onceReport) eachAction(f func(preview bool, a qos.Actions)) {
	f(false, r.plan.Actions)
	for _, p := range r.plan.Previews {
		f(true, p.Actions)
	}
}
