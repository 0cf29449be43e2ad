// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/autoscaling/scalingmetric"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/prediction/controller"
	"crane.io/crane/internal/prediction/predictor"
	"crane.io/crane/pkg/forecast/auto"
	"crane.io/crane/pkg/scaling"
	"crane.io/crane/pkg/scaling/replay"
	"crane.io/crane/pkg/series"
)

// fakeHistory serves one series up to the current time.
type fakeHistory struct{ load series.Series }

func (p fakeHistory) WorkloadUsage(_ context.Context, r metrics.WorkloadsRequest) (map[string]series.Series, error) {
	out := series.Series{Start: r.Window.Start, Step: r.Window.Step}
	for at := r.Window.Start; at.Before(r.Window.End) && at.Before(time.Now()); at = at.Add(r.Window.Step) {
		v := series.Gap()
		if i := int(at.Sub(p.load.Start) / p.load.Step); !at.Before(p.load.Start) && i < len(p.load.Values) {
			v = p.load.Values[i]
		}

		out.Values = append(out.Values, v)
	}

	return map[string]series.Series{r.Names[0]: out}, nil
}

func (fakeHistory) NodeUsage(context.Context, metrics.NodesRequest) (map[string]series.Series, error) {
	return nil, metrics.ErrUnsupported
}

func (fakeHistory) Range(context.Context, string, metrics.Window) ([]metrics.LabeledSeries, error) {
	return nil, metrics.ErrUnsupported
}

func (fakeHistory) Instant(context.Context, string, time.Time) ([]metrics.Sample, error) {
	return nil, metrics.ErrUnsupported
}

// clusterScaler is a scaler for the replay that runs the components of a cluster: the models with their history, the controllers of
// TimeSeriesPredictions and of EffectiveHorizontalPodAutoscalers, and the values that the metric adapter computes from their
// statuses.
type clusterScaler struct {
	replay.Reactive
	t             *testing.T
	fixture       *fixture
	predictions   *controller.Reconciler
	lastReconcile time.Time
	version       string
	writes        int
	replicas      []int32
}

func (*clusterScaler) Name() string { return "cluster" }

// Propose advances the virtual time, runs due reconciles, and proposes replicas like the HPA controller: for the metrics of the HPA,
// with the values of the adapter.
func (c *clusterScaler) Propose(v replay.ScalerInput) ([]scaling.Proposal, int32) {
	c.replicas = append(c.replicas, v.Current)
	time.Sleep(time.Until(v.Now))
	synctest.Wait()
	c.fixture.clock.SetTime(v.Now)
	tsp := &predictionv1alpha1.TimeSeriesPrediction{}

	key := types.NamespacedName{Namespace: "shop", Name: "ehpa-web"}
	if v.Now.Sub(c.lastReconcile) >= 30*time.Second {
		c.lastReconcile = v.Now
		if _, err := c.predictions.Reconcile(c.t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
			c.t.Fatal(err)
		}
	}

	if err := c.fixture.Client.Get(c.t.Context(), key, tsp); err != nil {
		c.t.Fatal(err)
	}

	if tsp.ResourceVersion != c.version {
		c.fixture.reconcile(c.t, "web")
		c.version = tsp.ResourceVersion
		c.writes++
	}

	out, _ := c.Reactive.Propose(v)
	for _, m := range c.fixture.hpa(c.t, "ehpa-web").Spec.Metrics {
		if m.Type != autoscalingv2.ExternalMetricSourceType {
			continue
		}

		one := scaling.Proposal{Metric: m.External.Metric.Name}
		forecast, err := scalingmetric.ActionableForecast(tsp, m.External.Metric.Selector.MatchLabels[autoscalingv1alpha1.MetricLabelResourceIdentifier], v.Now)
		one.Err = err

		if err == nil {
			value := scalingmetric.NewQuantity(forecast.Value)
			one.Replicas, one.Err = scaling.ReplicasForTotal(value.MilliValue(), m.External.Target.AverageValue.MilliValue(), v.Current, c.Tolerance)
		}

		out = append(out, one)
	}

	return out, 0
}

// recordingScaler records the replicas of a scaler.
type recordingScaler struct {
	replay.Scaler
	replicas []int32
}

func (o *recordingScaler) Propose(v replay.ScalerInput) ([]scaling.Proposal, int32) {
	o.replicas = append(o.replicas, v.Current)
	return o.Scaler.Propose(v)
}

// officeLoad returns a noisy load that is five times as high from nine to five, and rises within two minutes.
func officeLoad(start time.Time, length time.Duration) series.Series {
	s := series.Series{Start: start, Step: time.Minute}
	for m := range int(length / time.Minute) {
		day := float64(m % (24 * 60))
		up := math.Max(0, math.Min(1, (day-9*60)/2)) * math.Max(0, math.Min(1, (17*60-day)/30))
		s.Values = append(s.Values, 2+8*up+0.1*float64(m%7)+0.2*math.Sin(float64(m)/31))
	}

	return s
}

// TestClusterScalesAsTheReplay runs a series through the controllers in virtual time and through the scaler of `crane simulate
// autoscale`.
//
// Both use the same ledger. Differences are expected where a cluster publishes its forecasts up to a minute later each hour (the
// status is checked every 30 s), reads samples in batches, and writes values with five decimals. So a few steps differ at the edges
// of a jump, but the reported figures must agree.
func TestClusterScalesAsTheReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The scored time is from seven in the morning, before the load rises, to seven in the evening.
		const morning, hours = 7 * time.Hour, 12
		const warmup = 7*24*time.Hour + morning
		time.Sleep(morning)
		load := officeLoad(time.Now().Add(-warmup), warmup+hours*time.Hour)
		cfg := replay.Config{
			Capacity: 0.25, Target: 0.6, Startup: 3 * time.Minute, Delay: metricDelay, Sync: syncPeriod, Tolerance: scaling.DefaultTolerance(),
			Behavior: scaling.DefaultBehavior(5 * time.Minute), Bounds: scaling.Bounds{Min: 2, Max: 500}, Warmup: warmup,
		}

		reactive := replay.Reactive{Target: cfg.Target, Tolerance: cfg.Tolerance}
		alone, err := replay.Run(cfg, load, reactive)
		if err != nil {
			t.Fatal(err)
		}

		fleet, err := scaling.NewFleet(scaling.DefaultBudget)
		if err != nil {
			t.Fatal(err)
		}

		simulated, err := replay.NewPredictive(cfg, auto.NewModel(load.Step), fleet, "web")
		if err != nil {
			t.Fatal(err)
		}

		want := &recordingScaler{Scaler: simulated}
		wantScore, err := replay.Run(cfg, load, want)
		if err != nil {
			t.Fatal(err)
		}

		settings := predictor.DefaultConfig()
		settings.Source = fakeHistory{load}
		owner, err := predictor.New(settings)
		if err != nil {
			t.Fatal(err)
		}

		ctx, stop := context.WithCancel(t.Context())
		defer stop()

		go func() { _ = owner.Start(ctx) }()
		b := newFixture(t, deployment("web", 20), web(func(e *scaler) {
			e.Spec.MaxReplicas = 500
			e.Annotations = map[string]string{autoscalingv1alpha1.AnnotationPodStartup: "3m"}
		}))
		b.clock.SetTime(time.Now())

		got := &clusterScaler{Reactive: reactive, t: t, fixture: b, predictions: &controller.Reconciler{
			Client: b.Client, Predictor: owner, Metrics: controller.NewMetrics(owner.Accuracy, "crane-system"), Frequency: 30 * time.Second, Clock: b.clock,
		}}
		b.reconcile(t, "web")
		b.reconcile(t, "web")

		// craned reads the history before the first step.
		if _, err := got.predictions.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "ehpa-web"}}); err != nil {
			t.Fatal(err)
		}

		synctest.Wait()
		gotScore, err := replay.Run(cfg, load, got)
		if err != nil {
			t.Fatal(err)
		}

		same := 0
		for i := range want.replicas {
			if want.replicas[i] == got.replicas[i] {
				same++
			}
		}

		share := float64(same) / float64(len(want.replicas))
		t.Logf("reactive %+v", alone)
		t.Logf("replay   %+v (%s)", wantScore, simulated.Choice().Reason)
		t.Logf("cluster  %+v; %.2f %% of %d rounds alike; %d writes of the prediction", gotScore, 100*share, len(want.replicas), got.writes)

		if share < 0.99 {
			t.Errorf("%.2f %% of the syncs have the replay's replicas, want at least 99 %%", 100*share)
		}
		if alone.UnderCapacity < 3*time.Minute || gotScore.UnderCapacity > alone.UnderCapacity/3 {
			t.Errorf("under capacity for %s with a forecast and %s without, want a third of at least 3m", gotScore.UnderCapacity, alone.UnderCapacity)
		}
		if d := (gotScore.UnderCapacity - wantScore.UnderCapacity).Abs(); d > 2*time.Minute {
			t.Errorf("under capacity for %s, in the replay for %s", gotScore.UnderCapacity, wantScore.UnderCapacity)
		}

		if d := math.Abs(gotScore.ReplicaHours/wantScore.ReplicaHours - 1); d > 0.005 {
			t.Errorf("%.1f replica hours, in the replay %.1f", gotScore.ReplicaHours, wantScore.ReplicaHours)
		}
		// One write for each window, and the first ones.
		if most := hours + 3; got.writes > most {
			t.Errorf("%d writes of the prediction in %d windows, want at most %d", got.writes, hours, most)
		}
	})
}
