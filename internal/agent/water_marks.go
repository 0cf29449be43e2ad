// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/component/configfile"
	"crane.io/crane/internal/nodeload/policyfile"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/series"
)

// waterMarks are the water marks of the scheduler's policy, which also bound evictions. As a manager it follows the policy file.
type waterMarks struct {
	file *configfile.File[map[qos.Resource]series.Ratio]
	log  logr.Logger
}

// newWaterMarks reads --policy-config-path; without it there are none.
func (o *Options) newWaterMarks(log logr.Logger, clk clock.WithTicker) (waterMarks, error) {
	if o.PolicyConfig == "" {
		return waterMarks{configfile.Fixed[map[qos.Resource]series.Ratio](nil, clk), log}, nil
	}
	file, err := configfile.Open(o.PolicyConfig, configfile.DefaultInterval, clk, decodeWaterMarks)
	if err != nil {
		return waterMarks{}, fmt.Errorf("--policy-config-path: %w", err)
	}
	return waterMarks{file, log}, nil
}

func decodeWaterMarks(content []byte) (map[qos.Resource]series.Ratio, error) {
	policy, err := policyfile.Decode(content)
	if err != nil {
		return nil, fmt.Errorf("water marks: %w", err)
	}
	out := map[qos.Resource]series.Ratio{}
	for resource, m := range policy.Marks {
		out[qos.Resource(resource)] = m.Evict
	}
	return out, nil
}

// Name implements Manager.
func (waterMarks) Name() string { return "water-marks" }

// Run implements Manager.
func (m waterMarks) Run(ctx context.Context) error {
	m.file.Run(ctx, configfile.Observer[map[qos.Resource]series.Ratio]{
		Loaded: func(map[qos.Resource]series.Ratio) {
			m.log.Info("loaded the changed water marks of the scheduler's policy")
		},
		Rejected: func(err error) {
			m.log.Info("failed to load the scheduler's policy; keeping the previous water marks", "error", err.Error())
		},
	})
	return nil
}
