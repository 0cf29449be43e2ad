// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"fmt"
	"time"

	"github.com/prometheus/common/model"
	"sigs.k8s.io/yaml"

	"crane.io/crane/config"
)

// shortestWait is the shortest interval between scrapes and evaluations of rules.
const shortestWait = time.Second

// scrapeInterval returns the interval between two scrapes of Crane's components and two evaluations of alerts.
func (o *Options) scrapeInterval() time.Duration {
	return max(time.Duration(float64(liveInterval)/o.AlertSpeed), shortestWait)
}

// alertRules returns the rules of config/monitoring, with the time that alerts wait before they fire divided by a speed.
func alertRules(speed float64, interval time.Duration) (string, error) {
	content, err := config.Monitoring.ReadFile("monitoring/rules.yaml")
	if err != nil {
		return "", fmt.Errorf("reading the alert rules: %w", err)
	}

	// Expressions and labels stay as they are, so only the fields that change are typed.
	var file struct {
		Groups []struct {
			Name     string           `json:"name"`
			Interval string           `json:"interval"`
			Rules    []map[string]any `json:"rules"`
		} `json:"groups"`
	}

	if err := yaml.UnmarshalStrict(content, &file); err != nil {
		return "", fmt.Errorf("parsing the alert rules: %w", err)
	}

	for i := range file.Groups {
		file.Groups[i].Interval = model.Duration(interval).String()
		for _, rule := range file.Groups[i].Rules {
			text, ok := rule["for"].(string)
			if !ok {
				continue
			}

			wait, err := model.ParseDuration(text)
			if err != nil {
				return "", fmt.Errorf("parsing the time of alert %v: %w", rule["alert"], err)
			}

			scaled := time.Duration(float64(wait) / speed).Truncate(time.Millisecond)
			rule["for"] = model.Duration(scaled).String()
		}
	}

	out, err := yaml.Marshal(file)
	return string(out), err
}
