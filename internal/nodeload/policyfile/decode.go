// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package policyfile

import (
	"fmt"

	policyv1alpha1 "crane.io/crane/api/policy/v1alpha1"
	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/units"
)

// Decode parses a policy file. Errors name the path of the field.
func Decode(content []byte) (*nodeload.Policy, error) {
	file, err := policyv1alpha1.DecodeDynamicSchedulerPolicy(content)
	if err != nil {
		return nil, err
	}

	policy, err := nodeload.NewPolicy(SpecOf(file))
	if err != nil {
		return nil, fmt.Errorf("validating the DynamicSchedulerPolicy: %w", err)
	}

	return policy, nil
}

// SpecOf converts a file into the domain's type.
func SpecOf(file *policyv1alpha1.DynamicSchedulerPolicy) nodeload.Spec {
	var spec nodeload.Spec
	for _, m := range file.Spec.SyncPeriod {
		spec.Metrics = append(spec.Metrics, nodeload.Metric{
			Name:       m.Name,
			Period:     m.Period.Duration,
			Query:      m.Query,
			SampleTime: m.SampleTime,
			Resource:   units.Resource(m.Resource),
			From:       nodeload.Source(m.Source),
		})
	}

	for _, p := range file.Spec.Predicate {
		spec.Predicates = append(spec.Predicates, nodeload.NamedLimit{Name: p.Name, Max: units.Ratio(p.MaxLimitPercent)})
	}

	for _, p := range file.Spec.Priority {
		spec.Priorities = append(spec.Priorities, nodeload.NamedWeight{Name: p.Name, Weight: p.Weight})
	}

	for _, h := range file.Spec.HotValue {
		spec.Hot = append(spec.Hot, nodeload.HotRange{Range: h.TimeRange.Duration, Count: h.Count})
	}

	// Marks stays nil for a file without water marks.
	for resource, marks := range file.Spec.WaterMarks {
		if spec.Marks == nil {
			spec.Marks = map[units.Resource]nodeload.WaterMarks{}
		}

		spec.Marks[units.Resource(resource)] = nodeload.WaterMarks{
			Low: units.Ratio(marks.Low), Schedule: units.Ratio(marks.Schedule), Evict: units.Ratio(marks.Evict),
		}
	}

	return spec
}
