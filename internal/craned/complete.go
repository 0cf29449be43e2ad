// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// Complete fills in what follows from the flags and returns warnings: sentences about flags that were set and have no
// effect. It changes nothing but the options and opens no file.
func (o *Options) Complete(fs *pflag.FlagSet) []string {
	for i, name := range o.DataSources {
		o.DataSources[i] = strings.ToLower(strings.TrimSpace(name))
	}
	for i, name := range o.Controllers {
		o.Controllers[i] = strings.TrimSpace(name)
	}
	o.Prometheus.Address = strings.TrimSpace(o.Prometheus.Address)
	o.requireConfiguration = fs.Changed("recommendation-configuration-file")
	o.NodeLoad.requirePolicy = fs.Changed("policy-config-path")

	warnings := retiredWarnings(fs)
	if f := fs.Lookup("feature-gates"); f != nil && f.Changed {
		for name := range o.FeatureGates.GetAll() {
			if !served(name) && strings.Contains(f.Value.String(), string(name)+"=") {
				warnings = append(warnings, fmt.Sprintf("--feature-gates: %s has no effect on this craned", name))
			}
		}
	}
	return warnings
}
