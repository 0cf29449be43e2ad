// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"crane.io/crane/internal/autoscaling/controller/ehpa"
	"crane.io/crane/internal/autoscaling/controller/substitute"
	"crane.io/crane/internal/autoscaling/scalingmetric"
	"crane.io/crane/internal/component/wallclock"
	"crane.io/crane/internal/metrics/prometheus"
)

// effectiveHPAController is the name of the controllers behind EffectiveHorizontalPodAutoscaler and Substitute.
const effectiveHPAController = "effectivehpa"

// Autoscaling are the settings of EffectiveHorizontalPodAutoscalers.
type Autoscaling struct {
	Propagation ehpa.Propagation
	// LocalTime evaluates cron schedules without a time zone in the local one, as gocrane does; otherwise in UTC.
	LocalTime bool
	// Rules locates prometheus-adapter's configuration.
	Rules RulesLocation
	// Probe is the interval between two discoveries of external metrics; Grace is how long Crane's may be missing.
	Probe, Grace time.Duration
}

// RulesLocation is a file or a key of a ConfigMap with prometheus-adapter's configuration; empty for none.
type RulesLocation struct {
	File string
	// Namespace, Name and Key identify the key of a ConfigMap.
	Namespace, Name, Key string
	// ExtensionLabels is "k=v,k2=v2", added to each query of a rule.
	ExtensionLabels string
	// MaxAge is the maximum age of the newest sample of a series that a rule finds.
	MaxAge time.Duration
}

func newAutoscaling() Autoscaling {
	return Autoscaling{Probe: 30 * time.Second, Grace: 3 * time.Minute, Rules: RulesLocation{MaxAge: 10 * time.Minute}}
}

func (a *Autoscaling) addFlags(fs *pflag.FlagSet) {
	// Metadata that an HPA gets from its EffectiveHorizontalPodAutoscaler.
	p := &a.Propagation
	fs.StringSliceVar(&p.LabelPrefixes, "ehpa-propagation-label-prefixes", p.LabelPrefixes,
		"Prefixes of labels that are copied from an EffectiveHorizontalPodAutoscaler to its HPA.")
	fs.StringSliceVar(&p.AnnotationPrefixes, "ehpa-propagation-annotation-prefixes", p.AnnotationPrefixes,
		"Prefixes of annotations that are copied from an EffectiveHorizontalPodAutoscaler to its HPA.")
	fs.StringSliceVar(&p.Labels, "ehpa-propagation-labels", p.Labels,
		"Labels that are copied from an EffectiveHorizontalPodAutoscaler to its HPA.")
	fs.StringSliceVar(&p.Annotations, "ehpa-propagation-annotations", p.Annotations,
		"Annotations that are copied from an EffectiveHorizontalPodAutoscaler to its HPA.")

	fs.BoolVar(&a.LocalTime, "ehpa-cron-local-time", a.LocalTime,
		"Evaluate cron schedules without a time zone in the local one, as gocrane does, instead of UTC. Set it as for metric-adapter.")
	fs.DurationVar(&a.Probe, "ehpa-metrics-probe-interval", a.Probe,
		"Interval at which the availability of the forecast metric is checked.")
	fs.DurationVar(&a.Grace, "ehpa-metrics-grace", a.Grace,
		"Grace period of an unavailable forecast metric before it is removed from HPAs. Until then HPAs keep their replicas.")

	// Where prometheus-adapter's rules are: in a file, or in a key of a ConfigMap.
	r := &a.Rules
	fs.StringVar(&r.File, "prometheus-adapter-config", r.File,
		"File with prometheus-adapter's configuration. Its rules define the PromQL of forecast metrics. It is reloaded when it changes.")
	fs.StringVar(&r.Namespace, "prometheus-adapter-configmap-namespace", r.Namespace, "Namespace of a ConfigMap with that configuration.")
	fs.StringVar(&r.Name, "prometheus-adapter-configmap-name", r.Name, "Name of the ConfigMap.")
	fs.StringVar(&r.Key, "prometheus-adapter-configmap-key", r.Key, "Key of the configuration in the ConfigMap.")
	fs.StringVar(&r.ExtensionLabels, "prometheus-adapter-extension-labels", r.ExtensionLabels,
		"Label matchers that are added to each query of a rule, as k=v,k2=v2.")
	fs.DurationVar(&r.MaxAge, "metrics-max-age", r.MaxAge,
		"Maximum age of the newest sample of a series that a rule finds, as for metric-adapter. 0: series with a value now.")
}

func (a *Autoscaling) validate() field.ErrorList {
	var errs field.ErrorList
	for name, d := range map[string]time.Duration{"ehpa-metrics-probe-interval": a.Probe, "ehpa-metrics-grace": a.Grace} {
		if d <= 0 {
			errs = append(errs, notPositive(name, d))
		}
	}

	if a.Rules.MaxAge < 0 {
		errs = append(errs, field.Invalid(flag("metrics-max-age"), a.Rules.MaxAge.String(), "must not be negative"))
	}

	// Rules are read from one place: a file, or a key of a ConfigMap that is named completely.
	r := a.Rules

	inConfigMap := r.Namespace != "" || r.Name != "" || r.Key != ""
	if r.File != "" && inConfigMap {
		errs = append(errs, field.Forbidden(flag("prometheus-adapter-config"), "the configuration is either in a file or in a ConfigMap"))
	}

	for name, value := range map[string]string{
		"prometheus-adapter-configmap-namespace": r.Namespace,
		"prometheus-adapter-configmap-name":      r.Name,
		"prometheus-adapter-configmap-key":       r.Key,
	} {
		if inConfigMap && value == "" {
			errs = append(errs, field.Required(flag(name), "a ConfigMap needs a namespace, a name and a key"))
		}
	}

	if _, err := prometheus.ParseMatchers(r.ExtensionLabels); err != nil {
		errs = append(errs, field.Invalid(flag("prometheus-adapter-extension-labels"), r.ExtensionLabels, err.Error()))
	}

	return errs
}

// addAutoscaling adds the controllers behind EffectiveHorizontalPodAutoscaler and Substitute.
func addAutoscaling(ctx context.Context, d *dependencies) error {
	changed := make(chan event.TypedGenericEvent[client.Object], 1)
	rules, err := newRulesFollower(d, changed)
	if err != nil {
		return err
	}

	queries := &ehpa.QueryBuilder{Selector: d.data.selector, Pods: prometheus.PodMatchers, Rules: rules.Current}
	if d.source == nil {
		// Cron windows, and usage from other sources, need no PromQL.
		queries.NoPromQL = fmt.Errorf("its forecast needs PromQL, and --datasource has no %s", dataSourceProm)
	}

	err = ehpa.AddToManager(ctx, d.mgr, ehpa.Config{
		Settings:         ehpa.Settings{Propagation: d.Autoscaling.Propagation, Zones: scalingmetric.NewZones(d.Autoscaling.LocalTime)},
		Queries:          queries,
		ProbeInterval:    d.Autoscaling.Probe,
		ProbeGracePeriod: d.Autoscaling.Grace,
		Mapper:           d.mapper,
		Changed:          changed,
		SystemNamespace:  d.Namespace,
		Registry:         metricsRegistry(),
		Clock:            wallclock.New(),
	})
	if err != nil {
		return fmt.Errorf("adding the controller of effective HPAs: %w", err)
	}

	if err := substitute.AddToManager(d.mgr, wallclock.New()); err != nil {
		return fmt.Errorf("adding the controller of substitutes: %w", err)
	}

	return nil
}

// newRulesFollower returns the follower of prometheus-adapter's configuration.
func newRulesFollower(d *dependencies, changed chan<- event.TypedGenericEvent[client.Object]) (*ehpa.RulesWatcher, error) {
	location := d.Autoscaling.Rules
	extra, err := prometheus.ParseMatchers(location.ExtensionLabels)
	if err != nil {
		return nil, fmt.Errorf("--prometheus-adapter-extension-labels: %w", err)
	}

	follower := &ehpa.RulesWatcher{
		File:          location.File,
		ConfigMap:     client.ObjectKey{Namespace: location.Namespace, Name: location.Name},
		Key:           location.Key,
		Reader:        d.mgr.GetAPIReader(),
		ExtraMatchers: extra,
		MaxAge:        location.MaxAge,
		Changed:       changed,
		Clock:         wallclock.New(),
	}
	if d.source != nil {
		follower.Query = d.source.Vector
	}

	if location.File == "" && location.Name == "" {
		return follower, nil
	}

	if err := d.mgr.Add(follower); err != nil {
		return nil, fmt.Errorf("adding the watcher of prometheus-adapter's configuration: %w", err)
	}

	return follower, nil
}
