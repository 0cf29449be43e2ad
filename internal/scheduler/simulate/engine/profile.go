// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"crane.io/crane/internal/scheduler/simulate/peer"
)

// unreachableClient returns a client without a server: informers with it are never started, and a plugin that calls
// it fails.
func unreachableClient() (kubernetes.Interface, error) {
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:0"})
	if err != nil {
		return nil, fmt.Errorf("building a client: %w", err)
	}

	return client, nil
}

// newFramework returns upstream's framework for a policy: its default profile with the policy's plugin.
func newFramework(ctx context.Context, p peer.Policy, snapshot *internalcache.Snapshot, factory informers.SharedInformerFactory, client kubernetes.Interface) (framework.Framework, error) {
	config, err := latest.Default()
	if err != nil {
		return nil, fmt.Errorf("loading the scheduler's default configuration: %w", err)
	}

	profile := config.Profiles[0]
	disablePlugin(&profile, names.DynamicResources)

	registry := plugins.NewInTreeRegistry()
	if p.Plugin != "" {
		if err := registry.Register(p.Plugin, p.New); err != nil {
			return nil, fmt.Errorf("registering plugin %s: %w", p.Plugin, err)
		}

		enablePlugin(&profile, p)
	}

	f, err := frameworkruntime.NewFramework(ctx, registry, &profile,
		frameworkruntime.WithComponentConfigVersion(config.APIVersion),
		frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSnapshotSharedLister(snapshot),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithParallelism(1), // one node after the other, so that runs can be repeated
	)
	if err != nil {
		return nil, fmt.Errorf("building the scheduler's framework: %w", err)
	}

	return f, nil
}

// disablePlugin removes a plugin from the default profile. DynamicResources needs trackers that watch an API server,
// and no pod here has a claim.
func disablePlugin(profile *schedulerapi.KubeSchedulerProfile, name string) {
	profile.Plugins = profile.Plugins.DeepCopy()
	profile.Plugins.MultiPoint.Enabled = slices.DeleteFunc(profile.Plugins.MultiPoint.Enabled, func(p schedulerapi.Plugin) bool { return p.Name == name })
}

// enablePlugin adds the plugin through multiPoint, as users do.
func enablePlugin(profile *schedulerapi.KubeSchedulerProfile, p peer.Policy) {
	profile.Plugins.MultiPoint.Enabled = append(profile.Plugins.MultiPoint.Enabled, schedulerapi.Plugin{Name: p.Plugin, Weight: p.Weight})
	if p.Args != nil {
		profile.PluginConfig = append(profile.PluginConfig, schedulerapi.PluginConfig{Name: p.Plugin, Args: p.Args})
	}

	if p.Alone {
		profile.Plugins.Score.Disabled = []schedulerapi.Plugin{{Name: "*"}}
		profile.Plugins.Score.Enabled = []schedulerapi.Plugin{{Name: p.Plugin, Weight: p.Weight}}
	}
}
