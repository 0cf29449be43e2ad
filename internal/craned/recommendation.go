// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"crane.io/crane/internal/controller/recommendation"
	"crane.io/crane/internal/history"
)

// addRecommendation adds the controllers behind RecommendationRule and Recommendation.
func addRecommendation(ctx context.Context, p *parts) error {
	settings, err := recommendationSettings(ctx, p.Options)
	if err != nil {
		return err
	}
	err = recommendation.AddToManager(ctx, p.mgr, recommendation.Config{
		History:   history.Source{Usage: p.source, OOMs: p.source},
		Settings:  settings,
		Pricer:    p.ledger,
		Namespace: p.Namespace,
		Outdated:  p.RecommendationOutdated,
		Registry:  ctrlmetrics.Registry,
		Clock:     clock.RealClock{},
	})
	if err != nil {
		return fmt.Errorf("adding the recommendation controllers: %w", err)
	}
	return nil
}

// recommendationSettings reads the configuration file. Only the default path may be missing.
func recommendationSettings(ctx context.Context, o *Options) (recommendation.Settings, error) {
	data, err := os.ReadFile(o.RecommendationConfigurationFile)
	if errors.Is(err, fs.ErrNotExist) && !o.requireConfiguration {
		ctrl.LoggerFrom(ctx).Info("No recommendation configuration file; using the built-in configuration",
			"file", o.RecommendationConfigurationFile)
		return recommendation.BuiltinSettings(), nil
	}
	if err != nil {
		return recommendation.Settings{}, fmt.Errorf("--recommendation-configuration-file: %w", err)
	}
	settings, err := recommendation.ParseSettings(data)
	if err != nil {
		return recommendation.Settings{}, fmt.Errorf("--recommendation-configuration-file %s: %w", o.RecommendationConfigurationFile, err)
	}
	return settings, nil
}
