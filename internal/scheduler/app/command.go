// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package app builds crane-scheduler: kube-scheduler of the version in go.mod with Crane's plugins in its registry
// and their arguments in its schemes.
//
// Options, profiles, health checks, leader election and the scheduling loop are upstream's. Only this package and
// simulate link k8s.io/kubernetes; the plugins do not.
package app

import (
	"fmt"

	"github.com/spf13/cobra"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json, as upstream registers it
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go's request metrics, as upstream registers them
	_ "k8s.io/component-base/metrics/prometheus/version"  // the build's version as a metric
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	upstream "k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	configv1 "k8s.io/kubernetes/pkg/scheduler/apis/config/v1"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/component/version"
	"crane.io/crane/internal/scheduler/dynamic"
	"crane.io/crane/internal/scheduler/noderesourcetopology"
	"crane.io/crane/internal/scheduler/pluginconfig"
	"crane.io/crane/internal/scheduler/simulate"
)

// NewCommand returns the command of crane-scheduler, with kube-scheduler's flags.
func NewCommand() *cobra.Command {
	// One scheme decodes the file, the other sets defaults of plugin arguments and converts them.
	pluginconfig.AddToScheme(scheme.Scheme)
	pluginconfig.AddToScheme(configv1.GetPluginArgConversionScheme())

	// In the place of upstream's function for the same type.
	scheme.Scheme.AddTypeDefaultingFunc(&schedulerv1.KubeSchedulerConfiguration{}, func(obj any) {
		if c, ok := obj.(*schedulerv1.KubeSchedulerConfiguration); ok {
			configv1.SetObjectDefaults_KubeSchedulerConfiguration(c)
			pluginconfig.SetBindOrder(c)
		}
	})

	cmd := upstream.NewSchedulerCommand(plugins()...)
	cmd.Use = "crane-scheduler"
	cmd.Short = "kube-scheduler with Crane's plugins Dynamic and NodeResourceTopologyMatch"
	cmd.Long = "crane-scheduler is kube-scheduler with the plugins Dynamic (nodes by real load) and NodeResourceTopologyMatch\n" +
		"(whole CPUs by NUMA zone) beside its own. A profile of --config enables them; without, it is kube-scheduler."
	cmd.SilenceErrors = true
	run := cmd.RunE

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		// Upstream prints the version of Kubernetes and exits.
		if f := cmd.Flags().Lookup("version"); f != nil && f.Changed && f.Value.String() != "false" {
			fmt.Fprintln(cmd.OutOrStdout(), "crane-scheduler", version.Long())
		}

		err := run(cmd, args)
		if f := cmd.Flags().Lookup("config"); err != nil && f != nil && f.Changed {
			return fmt.Errorf("with the configuration %s: %w", f.Value, err)
		}

		return err
	}

	cmd.AddCommand(simulate.NewCommand())
	return cmd
}

// plugins returns the additions to upstream's registry, and registers their metrics.
func plugins() []upstream.Option {
	load := dynamic.NewFactory(clock.RealClock{}, dynamic.Registries{
		Metrics: legacyregistry.Register, Policies: legacyregistry.Registerer().Register,
	})
	zones := noderesourcetopology.NewFactory()
	legacyregistry.MustRegister(zones.Metrics()...)

	return []upstream.Option{
		upstream.WithPlugin(dynamic.Name, load.New),
		upstream.WithPlugin(noderesourcetopology.Name, zones.New),
	}
}
