// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Command recommender is craned with one more recommender, HeadroomCPU. It shows how a team applies a sizing rule of its own:
// the CPU request of each container is a quantile of its usage plus headroom. docs/how-to/write-a-recommender.md explains it.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"crane.io/crane/cmd/craned/command"
	"crane.io/crane/pkg/histogram"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

func main() {
	os.Exit(command.Run(recommend.Recommender{Name: "HeadroomCPU", Supports: supports, Configure: configure}))
}

func supports(_, kind string) bool {
	return kind == "Deployment" || kind == "StatefulSet" || kind == "DaemonSet"
}

const (
	history = 7 * 24 * time.Hour
	// leastDays are the days with samples from which a quantile is trusted.
	leastDays = 3
)

// headroomCPU is the recommender with the settings of one rule.
type headroomCPU struct {
	// quantile of the usage, between 0 and 1.
	quantile float64
	// headroom is added to the quantile, as a share of it.
	headroom float64
}

func configure(settings map[string]string) (recommend.Evaluation, error) {
	out := headroomCPU{quantile: .95, headroom: .2}
	for key, text := range settings {
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("config[%s]: %w", key, err)
		}

		switch {
		case key == "quantile" && value > 0 && value < 1:
			out.quantile = value
		case key == "headroom" && value >= 0 && value <= 2:
			out.headroom = value
		default:
			return nil, fmt.Errorf("config[%s] = %s: want quantile in (0, 1) or headroom in [0, 2]", key, text)
		}
	}

	return out, nil
}

// Prepare asks for a week of usage.
func (h headroomCPU) Prepare() recommend.Needs { return recommend.Needs{Usage: history} }

// container is a container of the patch.
type container struct {
	Name      string `json:"name"`
	Resources struct {
		Requests map[string]string `json:"requests"`
	} `json:"resources"`
}

// Recommend sizes the containers that have enough history and differ from the result by a tenth or more.
func (h headroomCPU) Recommend(observation recommend.Observation) (recommend.Recommendation, error) {
	var out recommend.Recommendation
	var current, recommended []container
	for _, c := range observation.Target.Containers {
		if c.Init || c.Sidecar || c.Current.CPURequest == nil {
			continue
		}

		usage, days := h.usage(c.Usage, observation.Now)
		if days < leastDays {
			out.State = recommend.Learning
			out.Description = fmt.Sprintf("Container %s has usage of %d days; %d are needed.", c.Name, days, leastDays)

			return out, nil
		}

		target := units.MilliCPU(1000*usage*(1+h.headroom)) + 1
		out.Evidence = append(out.Evidence, recommend.Evidence{
			Name: fmt.Sprintf("p%g of cpu of %s over %d days", 100*h.quantile, c.Name, days), Value: usage, Unit: "cores",
		})

		if difference := target - *c.Current.CPURequest; 10*max(difference, -difference) >= *c.Current.CPURequest {
			current = append(current, withRequest(c.Name, *c.Current.CPURequest))
			recommended = append(recommended, withRequest(c.Name, target))
		}
	}

	out.State = recommend.Ready
	out.Action = recommend.NoAction
	out.Description = "The CPU requests already have the wanted headroom."
	if len(recommended) > 0 {
		out.Action = recommend.Patch
		out.Description = fmt.Sprintf("The CPU requests of %d containers do not have a headroom of %g %%.", len(recommended), 100*h.headroom)
		out.Current = patch(current)
		out.Recommended = patch(recommended)
	}

	return out, nil
}

// usage returns the quantile of all samples of a container in cores, and the number of days with samples.
func (h headroomCPU) usage(profile *rightsize.Profile, now time.Time) (cores float64, days int) {
	if profile == nil {
		return 0, 0
	}

	var samples histogram.Counts
	for _, day := range profile.Window(now, history) {
		if day.CPU.Total() > 0 {
			samples.Merge(&day.CPU)
			days++
		}
	}

	if days == 0 {
		return 0, 0
	}

	return samples.Quantile(h.quantile), days
}

func withRequest(name string, cpu units.MilliCPU) container {
	out := container{Name: name}
	out.Resources.Requests = map[string]string{"cpu": units.FormatCPU(cpu)}

	return out
}

// patch returns a strategic merge patch of the pod template.
func patch(containers []container) any {
	type object map[string]any

	return object{"spec": object{"template": object{"spec": object{"containers": containers}}}}
}
