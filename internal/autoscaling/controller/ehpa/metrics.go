// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/autoscaling/scalingmetric"
	"crane.io/crane/internal/component/seriesguard"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/promadapter"
)

// The metrics have the names, labels and types of gocrane. Their series disappear with their objects.
var (
	hpaReplicasDesc = prometheus.NewDesc("crane_autoscaling_hpa_replicas",
		"Desired replicas of a HorizontalPodAutoscaler, whether Crane controls it or not.", []string{"namespace", "name"}, nil)
	ehpaReplicasDesc = prometheus.NewDesc("crane_autoscaling_effective_hpa_replicas",
		"Desired replicas of an EffectiveHorizontalPodAutoscaler.", []string{"namespace", "name"}, nil)
	scaleCountDesc = prometheus.NewDesc("crane_autoscaling_hpa_scale_count",
		"Times that a HorizontalPodAutoscaler scaled its target since this craned became the leader, by type: ehpa where Crane controls it, else hpa.",
		[]string{"namespace", "name", "type"}, nil)
	cronDesc = prometheus.NewDesc("crane_autoscaling_cron",
		"Replicas that the cron windows of a target ask for now, at least its minReplicas.",
		[]string{"targetKind", "targetName", "targetNamespace", "resourceIdentifier"}, nil)
	predictionDesc = prometheus.NewDesc("crane_autoscaling_prediction",
		"Forecast by which the HorizontalPodAutoscaler of a target scales, or the highest of the prediction window where no autoscaler owns the forecast.",
		[]string{"targetKind", "targetName", "targetNamespace", "resourceIdentifier", "algorithm"}, nil)
	ruleErrorsDesc = prometheus.NewDesc("crane_metricrule_errcount",
		"Invalid rules of prometheus-adapter's configuration by list: resourceRules, rules or externalRules; all is 1 where the configuration cannot be read.",
		[]string{"metricKind"}, nil)
	ruleWithoutEffectDesc = prometheus.NewDesc("crane_autoscaling_rule_without_effect",
		"1 for each rule of prometheus-adapter's configuration that defines no metric for forecasts, by the reason: refused where it is invalid, not_listed "+
			"where the server refuses its seriesQuery or it finds more than 10,000 names, no_series where it finds none, no_match where its filters and name leave none.",
		[]string{"rule", "reason"}, nil)
)

// cronIdentifier is the resourceIdentifier of all cron metrics.
const cronIdentifier = "cron"

// listTimeout bounds the lists of a scrape, which wait for the cache after a start.
const listTimeout = 2 * time.Second

// Metrics exports the replicas, forecasts and cron windows of autoscalers, computed from the cache at each scrape, and counts the scalings of
// HorizontalPodAutoscalers. It implements prometheus.Collector and is safe for concurrent use.
type Metrics struct {
	// Reader is the cache.
	Reader client.Reader
	// Zones are the time zones of cron schedules.
	Zones *scalingmetric.Zones
	// Elected is closed once this replica is the leader. The others export nothing, so that sums over replicas are right.
	Elected <-chan struct{}
	// Rules returns the rules of prometheus-adapter's configuration.
	Rules func() ListedRules
	// SystemNamespace is Crane's, whose objects may forecast targets of other namespaces and of the cluster.
	SystemNamespace string
	Clock           clock.PassiveClock

	mu     sync.Mutex
	scaled map[types.NamespacedName]map[string]int // by the value of the label type
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{hpaReplicasDesc, ehpaReplicasDesc, scaleCountDesc, cronDesc, predictionDesc, ruleErrorsDesc, ruleWithoutEffectDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. Metrics of objects that cannot be listed are omitted.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	select {
	case <-m.Elected:
	default:
		return
	}

	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()

	// Series whose objects cannot be listed are absent from this answer: a value would be wrong, and an error would cost the other metrics too.
	m.collectHPAs(ctx, ch)
	m.collectEHPAs(ctx, ch)
	m.collectPredictions(ctx, ch)
	m.collectScaleCounts(ch)
	m.collectRuleErrors(ch)
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	seriesguard.Send(ch, d, prometheus.GaugeValue, v, labels...)
}

func (m *Metrics) collectHPAs(ctx context.Context, ch chan<- prometheus.Metric) {
	var list autoscalingv2.HorizontalPodAutoscalerList
	if err := m.Reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return
	}

	for i := range list.Items {
		hpa := &list.Items[i]
		if hasDecision(hpa) {
			gauge(ch, hpaReplicasDesc, float64(hpa.Status.DesiredReplicas), hpa.Namespace, hpa.Name)
		}
	}
}

// collectEHPAs exports replicas, and the cron windows of each target once: those of the autoscaler that scales it.
func (m *Metrics) collectEHPAs(ctx context.Context, ch chan<- prometheus.Metric) {
	var list autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerList
	if err := m.Reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return
	}

	now := m.Clock.Now()
	byTarget := map[[3]string]*autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}
	for i := range list.Items {
		ehpa := &list.Items[i]
		if n := ehpa.Status.ExpectReplicas; n != nil {
			gauge(ch, ehpaReplicasDesc, float64(*n), ehpa.Namespace, ehpa.Name)
		}

		target := [3]string{ehpa.Spec.ScaleTargetRef.Kind, ehpa.Spec.ScaleTargetRef.Name, ehpa.Namespace}
		if len(ehpa.Spec.Crons) > 0 && (byTarget[target] == nil || yieldsTo(byTarget[target], ehpa)) {
			byTarget[target] = ehpa
		}
	}

	for target, ehpa := range byTarget {
		gauge(ch, cronDesc, float64(scalingmetric.CronReplicas(ehpa, m.Zones, now)), target[0], target[1], target[2], cronIdentifier)
	}
}

// collectPredictions exports each forecast of a target once: that of its namespace, of its autoscaler, else that of the first object by name.
func (m *Metrics) collectPredictions(ctx context.Context, ch chan<- prometheus.Metric) {
	var list predictionv1alpha1.TimeSeriesPredictionList
	if err := m.Reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return
	}

	now := m.Clock.Now()
	all := make([]*predictionv1alpha1.TimeSeriesPrediction, 0, len(list.Items))
	for i := range list.Items {
		if list.Items[i].Spec.TargetRef != nil {
			all = append(all, &list.Items[i])
		}
	}

	// The first of several forecasts of one series is exported, so the most relevant ones come first.
	slices.SortFunc(all, func(a, b *predictionv1alpha1.TimeSeriesPrediction) int {
		return cmp.Or(
			firstOf(targetsOwnNamespace(a), targetsOwnNamespace(b)), firstOf(servesHPA(a), servesHPA(b)),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
		)
	})

	seen := map[[5]string]bool{}
	for _, tsp := range all {
		forecast := scalingmetric.PeakForecast
		if servesHPA(tsp) {
			forecast = scalingmetric.ActionableForecast
		}

		for i := range tsp.Spec.PredictionMetrics {
			spec := &tsp.Spec.PredictionMetrics[i]
			algorithm := cmp.Or(spec.Algorithm.AlgorithmType, predictionv1alpha1.AlgorithmTypeAuto)

			ref := tsp.Spec.TargetRef
			namespace, exported := workload.ExportedNamespace(tsp.Namespace, ref.Namespace, m.SystemNamespace)
			labels := [5]string{ref.Kind, ref.Name, namespace, spec.ResourceIdentifier, string(algorithm)}
			if !exported || seen[labels] {
				continue
			}

			if f, err := forecast(tsp, spec.ResourceIdentifier, now); err == nil {
				seen[labels] = true
				gauge(ch, predictionDesc, f.Value, labels[:]...)
			}
		}
	}
}

// firstOf orders what has a property before what has it not.
func firstOf(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}

	return 1
}

// targetsOwnNamespace reports whether a TimeSeriesPrediction is in the namespace of its target. Others must not replace its series.
func targetsOwnNamespace(tsp *predictionv1alpha1.TimeSeriesPrediction) bool {
	return cmp.Or(tsp.Spec.TargetRef.Namespace, tsp.Namespace) == tsp.Namespace
}

// servesHPA reports whether the metric adapter serves the forecasts of a TimeSeriesPrediction.
func servesHPA(tsp *predictionv1alpha1.TimeSeriesPrediction) bool {
	return tsp.Labels[autoscalingv1alpha1.LabelManagedBy] == autoscalingv1alpha1.ManagedByEffectiveHPA
}

func (m *Metrics) collectScaleCounts(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()

	for name, counts := range m.scaled {
		for scaler, n := range counts {
			gauge(ch, scaleCountDesc, float64(n), name.Namespace, name.Name, scaler)
		}
	}
}

func (m *Metrics) collectRuleErrors(ch chan<- prometheus.Metric) {
	listed := m.Rules()
	for _, rule := range listed.Rules.Ineffective(listed.Series) {
		gauge(ch, ruleWithoutEffectDesc, 1, rule.Rule, rule.Reason)
	}

	err := listed.Problem
	if err == nil {
		return
	}

	counts := map[string]int{"all": 1}
	if invalid := (*promadapter.InvalidRulesError)(nil); errors.As(err, &invalid) {
		counts = invalid.Counts
	}

	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		gauge(ch, ruleErrorsDesc, float64(counts[kind]), kind)
	}
}

// recordScaling counts a change of an HPA's desired replicas that the HPA controller carried out.
func (m *Metrics) recordScaling(before, after *autoscalingv2.HorizontalPodAutoscaler) {
	if before.Status.DesiredReplicas == after.Status.DesiredReplicas ||
		!slices.ContainsFunc(after.Status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool { return c.Reason == "SucceededRescale" }) {
		return
	}

	scaler := "hpa"
	if isControlledByEHPA(after) {
		scaler = "ehpa"
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	if m.scaled == nil {
		m.scaled = map[types.NamespacedName]map[string]int{}
	}

	name := client.ObjectKeyFromObject(after)
	if m.scaled[name] == nil {
		m.scaled[name] = map[string]int{}
	}

	m.scaled[name][scaler]++
}

func (m *Metrics) forgetHPA(name types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()

	delete(m.scaled, name)
}

// watchHPAs counts scalings until ctx ends.
func (m *Metrics) watchHPAs(ctx context.Context, informers cache.Informers) error {
	informer, err := informers.GetInformer(ctx, &autoscalingv2.HorizontalPodAutoscaler{})
	if err != nil {
		return fmt.Errorf("watching HPAs: %w", err)
	}

	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			old, ok := before.(*autoscalingv2.HorizontalPodAutoscaler)
			if hpa, both := after.(*autoscalingv2.HorizontalPodAutoscaler); ok && both {
				m.recordScaling(old, hpa)
			}
		},
		DeleteFunc: func(o any) {
			if unknown, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = unknown.Obj
			}
			if hpa, ok := o.(*autoscalingv2.HorizontalPodAutoscaler); ok {
				m.forgetHPA(client.ObjectKeyFromObject(hpa))
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching HPAs: %w", err)
	}

	// The handler stays until this process stops, or is no longer the leader.
	<-ctx.Done()
	return informer.RemoveEventHandler(registration)
}
