// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"

	"crane.io/crane/internal/component/wallclock"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/internal/prediction/controller"
	"crane.io/crane/internal/prediction/predictor"
	"crane.io/crane/pkg/scaling"
)

// Prediction are the settings of forecasts.
type Prediction struct {
	// UpdateFrequency is the interval between two evaluations of a TimeSeriesPrediction.
	UpdateFrequency time.Duration
	// ModelUpdate is the maximum age of a forecast of dsp or percentile.
	ModelUpdate time.Duration
	// Refresh is the interval between two reads of new samples.
	Refresh time.Duration
	// TimeZone is the IANA name of the zone whose midnight ends a day.
	TimeZone string
	// AtOnce is the number of TimeSeriesPredictions evaluated concurrently.
	AtOnce int
	// StateDir has the checkpoints of models; empty for none.
	StateDir string
	// MaxSeries is the maximum number of models in memory.
	MaxSeries int
	// MaxMemory and MaxNamespaceMemory bound the memory of models, of all and of those for the objects of one namespace.
	MaxMemory, MaxNamespaceMemory resource.QuantityValue
	// ScalingBudget is the maximum of the additional replica hours of all EffectiveHorizontalPodAutoscalers, as a fraction.
	ScalingBudget float64
}

func newPrediction() Prediction {
	c := predictor.DefaultConfig()
	return Prediction{
		UpdateFrequency:    30 * time.Second,
		ModelUpdate:        c.ModelUpdate,
		Refresh:            c.Refresh,
		TimeZone:           "UTC",
		AtOnce:             10,
		MaxSeries:          c.MaxSeries,
		MaxMemory:          bytesValue(c.MaxBytes),
		MaxNamespaceMemory: bytesValue(c.MaxNamespaceBytes),
		ScalingBudget:      c.ScalingBudget,
	}
}

func bytesValue(n int64) resource.QuantityValue {
	return resource.QuantityValue{Quantity: *resource.NewQuantity(n, resource.BinarySI)}
}

func (p *Prediction) addFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&p.UpdateFrequency, "prediction-update-frequency-duration", p.UpdateFrequency,
		"Interval at which a TimeSeriesPrediction is evaluated. Its status is written about once per window at any interval.")
	fs.DurationVar(&p.ModelUpdate, "model-update-interval", p.ModelUpdate,
		"Maximum age of a forecast by dsp or percentile. Models of auto learn from each sample.")
	fs.DurationVar(&p.Refresh, "prediction-refresh-interval", p.Refresh,
		"Interval at which new samples are read for forecasts. After three failed reads a forecast is stale.")
	fs.StringVar(&p.TimeZone, "prediction-time-zone", p.TimeZone,
		"Time zone, such as Europe/Berlin, whose midnight ends a day for forecasts: working days and weekends change there.")
	fs.IntVar(&p.AtOnce, "time-series-prediction-max-concurrent-reconciles", p.AtOnce,
		"Maximum number of TimeSeriesPredictions that are reconciled at once.")

	fs.StringVar(&p.StateDir, "prediction-state-dir", p.StateDir,
		"Directory of model checkpoints, so that a restart reads only new samples. If empty, no checkpoints are kept.")
	fs.IntVar(&p.MaxSeries, "prediction-max-series", p.MaxSeries,
		"Maximum number of forecast series. Each takes some 40 KiB of memory.")
	fs.Var(&p.MaxMemory, "prediction-max-memory", "Maximum memory of the models of all forecasts.")
	fs.Var(&p.MaxNamespaceMemory, "prediction-max-memory-per-namespace",
		"Maximum memory of the models of the TimeSeriesPredictions of one namespace. Crane's own namespace has no such limit.")
	fs.Float64Var(&p.ScalingBudget, "scaling-ahead-budget", p.ScalingBudget,
		"Additional replica hours that the forecasts of all EffectiveHorizontalPodAutoscalers together may cost, as a fraction of those of the "+
			"HPAs alone, from 0 to 10. They are spent where they avoid most minutes under capacity.")
}

func (p *Prediction) validate() field.ErrorList {
	var errs field.ErrorList
	for name, d := range map[string]time.Duration{
		"prediction-update-frequency-duration": p.UpdateFrequency, "model-update-interval": p.ModelUpdate,
	} {
		if d <= 0 {
			errs = append(errs, notPositive(name, d))
		}
	}

	if p.Refresh < time.Second {
		errs = append(errs, field.Invalid(flag("prediction-refresh-interval"), p.Refresh.String(), "must be 1s or more"))
	}
	if _, err := time.LoadLocation(p.TimeZone); err != nil {
		errs = append(errs, field.Invalid(flag("prediction-time-zone"), p.TimeZone, err.Error()))
	}
	if p.AtOnce < 1 {
		errs = append(errs, field.Invalid(flag("time-series-prediction-max-concurrent-reconciles"), p.AtOnce, "must be 1 or more"))
	}

	for name, q := range map[string]resource.QuantityValue{
		"prediction-max-memory": p.MaxMemory, "prediction-max-memory-per-namespace": p.MaxNamespaceMemory,
	} {
		if q.Value() < 1 {
			errs = append(errs, field.Invalid(flag(name), q.String(), "must be more than 0"))
		}
	}

	// NewFleet checks the range of the budget.
	if _, err := scaling.NewFleet(p.ScalingBudget); err != nil {
		errs = append(errs, field.Invalid(flag("scaling-ahead-budget"), p.ScalingBudget, "must be from 0 to 10"))
	}
	if p.MaxSeries < 1 {
		errs = append(errs, field.Invalid(flag("prediction-max-series"), p.MaxSeries, "must be 1 or more"))
	}

	return errs
}

// Isolation are the settings of what predictions of tenants read.
type Isolation struct {
	Enabled bool
	// Label is the label of series with their namespace.
	Label string
	// Unrestricted are the namespaces whose predictions read all series.
	Unrestricted []string
	// ClusterScope honors spec.queryScope Cluster.
	ClusterScope bool
}

func (i *Isolation) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&i.Enabled, "tenant-isolation", i.Enabled,
		"Restrict TimeSeriesPredictions to series and targets of their own namespace. Expressions must then be PromQL.")
	fs.StringVar(&i.Label, "tenant-namespace-label", i.Label, "Label of series that has their namespace, for --tenant-isolation.")
	fs.StringSliceVar(&i.Unrestricted, "tenant-unrestricted-namespaces", i.Unrestricted,
		"Namespaces beside Crane's own whose TimeSeriesPredictions read all series under --tenant-isolation.")
	fs.BoolVar(&i.ClusterScope, "tenant-cluster-scope", i.ClusterScope,
		"Honor queryScope Cluster under --tenant-isolation. Only for clusters with the admission policy crane-prediction-query-scope.")
}

func (i *Isolation) validate() field.ErrorList {
	if err := (prometheus.Matcher{Label: i.Label, Op: "="}).Validate(); err != nil {
		return field.ErrorList{field.Invalid(flag("tenant-namespace-label"), i.Label, err.Error())}
	}

	return nil
}

// isolation returns the restriction of predictions.
func (d *dependencies) isolation() controller.Isolation {
	i := d.Isolation
	return controller.Isolation{
		Enabled:         i.Enabled,
		Label:           i.Label,
		SystemNamespace: d.Namespace,
		Unrestricted:    i.Unrestricted,
		ClusterScope:    i.ClusterScope,
	}
}

// addClusterNodePrediction adds the controller behind ClusterNodePrediction.
func addClusterNodePrediction(ctx context.Context, d *dependencies) error {
	if err := controller.AddNodesToManager(ctx, d.mgr, d.Namespace, wallclock.New()); err != nil {
		return fmt.Errorf("adding the controller of cluster node predictions: %w", err)
	}

	return nil
}

// addTimeSeriesPrediction adds the controller behind TimeSeriesPrediction.
func addTimeSeriesPrediction(ctx context.Context, d *dependencies) error {
	models, err := d.predictor(ctx)
	if err != nil {
		return err
	}

	err = controller.AddToManager(d.mgr, controller.Config{
		Predictor:       models,
		Selector:        d.data.selector,
		Registry:        metricsRegistry(),
		Clock:           wallclock.New(),
		Isolation:       d.isolation(),
		SystemNamespace: d.Namespace,
		Frequency:       d.Prediction.UpdateFrequency,
		MaxConcurrent:   d.Prediction.AtOnce,
	})
	if err != nil {
		return fmt.Errorf("adding the controller of time series predictions: %w", err)
	}

	return nil
}

// addPredictor adds the predictor, which owns the models, to the manager.
func addPredictor(ctx context.Context, d *dependencies) (*predictor.Predictor, error) {
	config := predictor.DefaultConfig()
	config.Clock = wallclock.New()
	config.Log = ctrl.LoggerFrom(ctx).WithName("predictor")
	config.Source = d.data.list
	config.IsQueryError = isRequestError
	config.StateDir = d.Prediction.StateDir
	config.ScalingBudget = d.Prediction.ScalingBudget

	config.MaxSeries = d.Prediction.MaxSeries
	config.MaxBytes = d.Prediction.MaxMemory.Value()
	config.MaxNamespaceBytes = d.Prediction.MaxNamespaceMemory.Value()

	// Three reads of samples may fail before a forecast is stale.
	config.Refresh = d.Prediction.Refresh
	config.StaleAfter = 3 * d.Prediction.Refresh
	config.ModelUpdate = d.Prediction.ModelUpdate

	zone, err := time.LoadLocation(d.Prediction.TimeZone)
	if err != nil {
		return nil, fmt.Errorf("--prediction-time-zone: %w", err)
	}

	config.TimeZone = zone

	models, err := predictor.New(config)
	if err != nil {
		return nil, fmt.Errorf("building the predictor: %w", err)
	}

	if err := metricsRegistry().Register(models); err != nil {
		return nil, fmt.Errorf("registering the metrics of the predictor: %w", err)
	}

	if err := d.mgr.Add(models); err != nil {
		return nil, fmt.Errorf("adding the predictor: %w", err)
	}

	return models, nil
}

// isRequestError reports whether the source refused the query, as opposed to a failing source.
func isRequestError(err error) bool {
	if errors.Is(err, metrics.ErrUnsupported) {
		return true
	}

	var e *prometheus.Error
	return errors.As(err, &e) && (e.Kind == prometheus.Refused || e.Kind == prometheus.TooLarge)
}
