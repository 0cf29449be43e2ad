// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/component/configfile"
	"crane.io/crane/internal/component/wallclock"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/internal/recommendation/controller"
)

// addRecommendation adds the controllers behind RecommendationRule and Recommendation.
func addRecommendation(ctx context.Context, d *dependencies) error {
	settings, err := recommendationSettings(ctx, d.Options)
	if err != nil {
		return err
	}

	// The webhook warns of recommenders that the current settings reject.
	d.validateRecommender = func(r analysisv1alpha1.Recommender) error { return settings.Content().Check(r) }

	// Kills that Crane has recorded itself count beside those of the sources.
	history := d.data.history()
	history.OOM = d.combinedKills(history.OOM)

	err = controller.AddToManager(ctx, d.mgr, controller.Config{
		History:   profile.Source{Capabilities: history},
		Settings:  settings,
		Reaction:  d.source != nil && d.reactsAsReplayed(),
		Pricer:    d.ledger,
		Costs:     d.ledger.Latest,
		Namespace: d.Namespace,
		Outdated:  d.RecommendationOutdated,
		Registry:  metricsRegistry(),
		Clock:     wallclock.New(),
	})
	if err != nil {
		return fmt.Errorf("adding the recommendation controllers: %w", err)
	}

	return nil
}

// recommendationSettings opens the configuration file. Only the default path may be missing.
func recommendationSettings(ctx context.Context, o *Options) (*configfile.File[controller.Settings], error) {
	registry, err := controller.NewRegistry(o.recommenders...)
	if err != nil {
		return nil, err
	}

	path := o.RecommendationConfigurationFile
	parse := registry.ParseSettings

	// A file that the operator names must exist; the default path may get a file later.
	if o.requireConfiguration {
		file, err := configfile.Open(path, configfile.DefaultInterval, wallclock.New(), parse)
		if err != nil {
			return nil, fmt.Errorf("--recommendation-configuration-file: %w", err)
		}

		return file, nil
	}

	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		ctrl.LoggerFrom(ctx).Info("using the built-in recommendation configuration until there is a file", "file", path)
	}

	file, err := configfile.OpenOptional(path, configfile.DefaultInterval, wallclock.New(), parse, registry.DefaultSettings())
	if err != nil {
		return nil, fmt.Errorf("--recommendation-configuration-file: %w", err)
	}

	return file, nil
}
