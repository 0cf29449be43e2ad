// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"crane.io/crane/internal/component/deprecatedflags"
	"crane.io/crane/internal/component/featuregate"
)

// Complete sets options that follow from others and returns warnings about flags that were set and have no effect or show a
// credential. It opens no file.
func (o *Options) Complete(fs *pflag.FlagSet) []string {
	for i, name := range o.DataSources {
		if canonical, ok := dataSourceName(name); ok {
			o.DataSources[i] = canonical
		}
	}

	for i, name := range o.Controllers {
		o.Controllers[i] = strings.TrimSpace(name)
	}

	o.Prometheus.Address = strings.TrimSpace(o.Prometheus.Address)
	o.requireConfiguration = fs.Changed("recommendation-configuration-file")
	o.NodeLoad.requirePolicy = fs.Changed("policy-config-path")

	warnings := append(deprecatedflags.Warnings(fs), o.Prometheus.Complete()...)
	if len(o.DataSources) > 0 && !slices.ContainsFunc(o.DataSources, keepsHistory) {
		warnings = append(warnings, "--datasource: none of "+strings.Join(o.DataSources, ",")+
			" keeps history: there will be no recommendations and no forecasts")
	}

	return append(warnings, featuregate.Warnings(fs, "craned", gateHasEffect)...)
}
