// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

// Settings of the chaos scenario, and the bounds that it checks.
const (
	chaosBudget      = 2
	chaosStep        = 0.2
	chaosWatch       = 10 * time.Second
	chaosPoll        = time.Second
	chaosMinReplicas = 2
	chaosMaxReplicas = 12
	chaosDescription = "Random faults"
	// chaosSteps is the number of steps of 20 % from 1000m to 200m.
	chaosSteps = 8
)

// TestChaos kills, pauses and cuts off craned, crane-scheduler, metric-adapter, an agent and Prometheus at random, fills their disks, expires
// certificates and lets the clock of craned jump, while workloads are lowered, scaled, scheduled and throttled. All along no Recommendation is
// lost, no step is applied twice, replicas stay within their bounds, adoptions within their budget and throttled pods above their requests.
// After the faults every workload gets its size and its node, and what is deleted leaves nothing. CRANE_CHAOS_DURATION is the time of the faults; without it they are three
// minutes of one sequence. CRANE_CHAOS_SEED repeats a sequence.
func TestChaos(t *testing.T) {
	duration := 3 * time.Minute
	seed := uint64(1)
	var err error
	if text := os.Getenv("CRANE_CHAOS_DURATION"); text != "" {
		seed = uint64(time.Now().UnixNano())
		if duration, err = time.ParseDuration(text); err != nil {
			t.Fatalf("CRANE_CHAOS_DURATION: %v", err)
		}
	}

	if text := os.Getenv("CRANE_CHAOS_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("CRANE_CHAOS_SEED: %v", err)
		}
	}

	t.Logf("%s of faults with CRANE_CHAOS_SEED=%d", duration, seed)
	random := rand.New(rand.NewPCG(seed, 0))
	proxy := newFaultProxy(t)
	binaries, offsetFile := chaosBinaries(t)

	// Two workloads are lowered at once, each for about two minutes.
	workloads := min(40, 2+int(duration/(90*time.Second)))
	s := launch(t, t.TempDir(), "--keep", "--demo", chaosScenario(t, random, proxy.url, workloads, duration), "--nodes", strconv.Itoa(4+workloads/4), "--workloads", "6",
		"--days", "2", "--bin-dir", binaries, "--only", "apiserver,controller-manager,scheduler,prometheus,craned,crane-scheduler,metric-adapter")

	eventually(t, "Prometheus serves", func() error {
		m := regexp.MustCompile(`Prometheus serves at (\S+)`).FindStringSubmatch(s.output())
		if m == nil {
			return errors.New(s.output())
		}

		return proxy.forward(m[1])
	})

	// The steps of the scenario stop and start Prometheus while the faults below are injected.
	s.awaitOutput(t, "the scenario starts", chaosDescription)
	c := &chaos{session: s, proxy: proxy, random: random, offsetFile: offsetFile, pods: map[types.UID]podSize{}, recommendations: map[string]types.UID{}}
	c.adopt(t, workloads)

	end := time.Now().Add(duration)
	tick := time.NewTicker(chaosPoll)
	defer tick.Stop()

	for next := time.Now(); time.Now().Before(end) && !t.Failed(); <-tick.C {
		c.check(t)
		c.repair(t, time.Now())

		if now := time.Now(); now.After(next) && c.fault == nil {
			c.inject(t, end)
			next = now.Add(time.Duration(1+random.IntN(8)) * time.Second)
		}
	}

	c.repair(t, end.Add(time.Hour))
	t.Logf("faults: %v; most workloads at once: %d; throttled: %t", c.counts, c.mostUnderWay, c.throttled)

	if t.Failed() {
		return
	}

	c.checkEnd(t, workloads)
}

// chaosScenario writes the scenario: the workloads, and times at which Prometheus stops and starts.
func chaosScenario(t *testing.T, random *rand.Rand, prometheus string, workloads int, duration time.Duration) string {
	t.Helper()

	var b strings.Builder
	fmt.Fprintf(&b, `description: %s
controllerManager: {horizontal-pod-autoscaler-sync-period: 5s}
craned:
  prometheus-address: %s
  adoption-watch: %s
  adoption-look-interval: 1s
  adoption-settle: 10s
  adoption-step: "%g"
  adoption-max-per-namespace: "%d"
  prediction-update-frequency-duration: 5s
  prediction-refresh-interval: 15s
  ehpa-metrics-probe-interval: 2s
metricRules: |
  rules: []
  externalRules:
  - seriesQuery: shop_requests_per_second
    resources: {namespaced: false}
    metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>})
agentNodes: 1
agent: {dry-run: "false", enforce: "cpu-throttle,taint"}
load: {metric: shop_requests_per_second, namespace: shop, low: 140, high: 560, period: 10m, busy: 3m, ramp: 30s, riseAfter: 60s}
steps:
- at: 0s
  apply: |
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: storefront, namespace: shop}
    spec:
      replicas: 2
      selector: {matchLabels: {app: storefront}}
      template:
        metadata: {labels: {app: storefront}, annotations: {sim.crane.io/cpu: 20m, sim.crane.io/memory: 20Mi}}
        spec:
          schedulerName: crane-scheduler
          containers: [{name: app, image: "pause:3.10", resources: {requests: {cpu: 50m, memory: 32Mi}}}]
    ---
    apiVersion: autoscaling.crane.io/v1alpha1
    kind: EffectiveHorizontalPodAutoscaler
    metadata: {name: storefront, namespace: shop}
    spec:
      scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: storefront}
      minReplicas: %d
      maxReplicas: %d
      metrics:
      - {type: External, external: {metric: {name: shop_requests_per_second}, target: {type: AverageValue, averageValue: "40"}}}
      behavior: {scaleDown: {stabilizationWindowSeconds: 30}}
      prediction: {predictionAlgorithm: {algorithmType: auto}}
`, chaosDescription, prometheus, chaosWatch, chaosStep, chaosBudget, chaosMinReplicas, chaosMaxReplicas)

	b.WriteString(chaosPressure)
	for i := range workloads {
		fmt.Fprintf(&b, `    ---
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: generous-%[1]d, namespace: shop}
    spec:
      replicas: 1
      selector: {matchLabels: {app: generous-%[1]d}}
      template:
        metadata: {labels: {app: generous-%[1]d}, annotations: {sim.crane.io/cpu: 20m, sim.crane.io/memory: 20Mi}}
        spec: {containers: [{name: app, image: "pause:3.10", resources: {requests: {cpu: "1", memory: 64Mi}}}]}
    ---
    apiVersion: analysis.crane.io/v1alpha1
    kind: Recommendation
    metadata: {name: generous-%[1]d, namespace: shop}
    spec:
      adoptionType: StatusAndAnnotation
      type: Resource
      targetRef: {apiVersion: apps/v1, kind: Deployment, namespace: shop, name: generous-%[1]d}
`, i)
	}

	for at := 30 * time.Second; at < duration; {
		at += time.Duration(20+random.IntN(40)) * time.Second
		fmt.Fprintf(&b, "- {at: %s, stop: prometheus}\n", at)
		at += time.Duration(3+random.IntN(10)) * time.Second
		fmt.Fprintf(&b, "- {at: %s, start: prometheus}\n", at)
	}

	path := filepath.Join(t.TempDir(), "chaos.yaml")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}

	return path
}

// chaos injects faults into a playground and checks its invariants.
type chaos struct {
	*session
	proxy  *faultProxy
	random *rand.Rand

	// fault removes the present fault at until; nil without one.
	fault  func()
	until  time.Time
	counts map[string]int

	// offsetFile is the file with the offset of the clock of craned, jumped the time of its last change.
	offsetFile string
	jumped     time.Time

	// paused is the time at which Crane was paused; zero while it is not.
	paused time.Time

	// recommendations are the UIDs by namespace and name of those that were seen, pods the sizes.
	recommendations map[string]types.UID
	pods            map[types.UID]podSize
	// podsRead is the time at which the last reading of the pods began.
	podsRead     time.Time
	mostUnderWay int
	// throttled is set once the agent has throttled a pod; limit is its limit at the last check, in cores, limitRead the time of it.
	throttled bool
	limit     float64
	limitRead time.Time
}

// podSize is the CPU request of a pod, and a time before which it was not lowered for the last time.
type podSize struct {
	cpu     int64
	lowered time.Time
}

// adopt gives the Recommendations a value, waits for the pods, and starts adoption.
func (c *chaos) adopt(t *testing.T, workloads int) {
	t.Helper()

	eventually(t, "Recommendations and pods", func() error {
		running := 0
		for _, p := range c.podsOf(t) {
			if p.Status.Phase == corev1.PodRunning {
				running++
			}
		}

		if running < workloads {
			return fmt.Errorf("%d of %d pods run", running, workloads)
		}

		return nil
	})

	for i := range workloads {
		name := fmt.Sprintf("generous-%d", i)
		c.kubectl(t, "patch", "recommendation", name, "-n", "shop", "--subresource=status", "--type=merge", "-p",
			`{"status": {"recommendedValue": "resourceRequest:\n  containers:\n  - containerName: app\n    target: {cpu: 200m, memory: 64Mi}\n"}}`)
		c.kubectl(t, "patch", "recommendation", name, "-n", "shop", "--type=merge", "-p", `{"spec":{"adoptionType":"Auto"}}`)
	}
}

// read decodes the answer of kubectl get.
func (c *chaos) read(t *testing.T, into any, args ...string) {
	t.Helper()

	if err := json.Unmarshal([]byte(c.kubectl(t, append([]string{"get", "-o", "json"}, args...)...)), into); err != nil {
		t.Fatal(err)
	}
}

// check fails the test for each invariant that does not hold.
func (c *chaos) check(t *testing.T) {
	t.Helper()

	c.checkRecommendations(t)
	c.checkPods(t)
	c.checkReplicas(t)
	c.checkThrottled(t)
}

func (c *chaos) checkRecommendations(t *testing.T) {
	t.Helper()

	var list analysisv1alpha1.RecommendationList
	c.read(t, &list, "recommendations", "-A")

	present := map[string]types.UID{}
	underWay := 0
	for _, r := range list.Items {
		present[r.Namespace+"/"+r.Name] = r.UID
		a := r.Status.Adoption
		if a == nil {
			continue
		}

		switch a.Phase {
		case "Lowering", "Watching":
			underWay++
		case "RollingBack", "Held", "Stopped":
			t.Errorf("%s has phase %s, want none that rolled back, is held or has stopped: %s", r.Name, a.Phase, a.Message)
		}

		if a.Steps > chaosSteps {
			t.Errorf("%s was lowered %d times, want at most %d", r.Name, a.Steps, chaosSteps)
		}
	}

	for name, uid := range c.recommendations {
		if present[name] != uid {
			t.Errorf("Recommendation %s has UID %q, want %q as before", name, present[name], uid)
		}
	}

	c.recommendations = present
	c.mostUnderWay = max(c.mostUnderWay, underWay)

	if underWay > chaosBudget {
		t.Errorf("%d workloads are lowered at once, want at most %d", underWay, chaosBudget)
	}
}

// checkPods compares the requests of pods with those of the last check: each step is at most the share of a request, and comes after the watch of
// the step before it.
func (c *chaos) checkPods(t *testing.T) {
	t.Helper()

	last := c.podsRead
	begin := time.Now()

	pods := c.podsOf(t)
	c.podsRead = begin
	end := time.Now()
	for _, p := range pods {
		size := podSize{cpu: p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()}
		before := c.pods[p.UID]
		size.lowered = before.lowered
		switch {
		case before.cpu == 0:

			// New since the last check.
		case size.cpu > before.cpu:
			t.Errorf("%s was raised from %dm to %dm, want steps down only", p.Name, before.cpu, size.cpu)

		case size.cpu < before.cpu:
			size.lowered = last // or later
			if c.stopped(last) {
				t.Errorf("%s was lowered from %dm to %dm while Crane was paused, want no change", p.Name, before.cpu, size.cpu)
			}

			// Several steps fit between two checks that are far apart, and a clock that jumps ends a watch.
			jumped := before.lowered.Before(c.jumped) || last.Before(c.jumped)
			steps := 1 + math.Floor(float64(end.Sub(last))/float64(chaosWatch))
			if jumped {
				steps++
			}
			if least := int64(float64(before.cpu)*math.Pow(1-chaosStep, steps)) - 1; size.cpu < least {
				t.Errorf("%s was lowered from %dm to %dm, want at least %dm: a step was applied twice", p.Name, before.cpu, size.cpu, least)
			}

			if since := end.Sub(before.lowered); !jumped && !before.lowered.IsZero() && since < chaosWatch {
				t.Errorf("%s was lowered at most %s after the step before, want %s or more", p.Name, since, chaosWatch)
			}
		}

		c.pods[p.UID] = size
	}
}

func (c *chaos) checkReplicas(t *testing.T) {
	t.Helper()

	var storefront appsv1.Deployment
	c.read(t, &storefront, "deployment", "storefront", "-n", "shop")

	if n := *storefront.Spec.Replicas; n < chaosMinReplicas || n > chaosMaxReplicas {
		t.Errorf("storefront has %d replicas, want %d to %d", n, chaosMinReplicas, chaosMaxReplicas)
	}

	var scalers struct {
		Items []autoscalingv2.HorizontalPodAutoscaler
	}
	c.read(t, &scalers, "hpa", "-n", "shop")

	for _, h := range scalers.Items {
		if h.Spec.ScaleTargetRef.Name == "storefront" && (h.Name != "ehpa-storefront" || h.Spec.MaxReplicas != chaosMaxReplicas || h.Spec.MinReplicas == nil || *h.Spec.MinReplicas != chaosMinReplicas) {
			t.Errorf("HPA %s is %+v, want ehpa-storefront with the replicas of the EffectiveHorizontalPodAutoscaler", h.Name, h.Spec)
		}
	}
}

// checkEnd waits until the system without faults has adopted everything, then deletes and withdraws everything, and checks that nothing is left.
func (c *chaos) checkEnd(t *testing.T, workloads int) {
	t.Helper()

	sizes := func(want int64) error {
		for _, p := range c.podsOf(t) {
			if cpu := p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue(); cpu != want {
				return fmt.Errorf("%s requests %dm, want %dm", p.Name, cpu, want)
			}
		}

		return nil
	}

	deadline := time.Now().Add(2*bound + time.Duration(workloads)*time.Minute)
	tick := time.NewTicker(chaosPoll)
	defer tick.Stop()

	for sizes(200) != nil && !t.Failed() {
		if time.Now().After(deadline) {
			t.Fatalf("at the end: %v, want all pods at 200m", sizes(200))
		}

		c.check(t)
		<-tick.C
	}

	for _, p := range c.podsOf(t) {
		if n := p.Status.ContainerStatuses[0].RestartCount; n > 0 {
			t.Errorf("%s was restarted %d times, want no restart", p.Name, n)
		}
	}

	eventually(t, "no throttled pod and no taint", func() error {
		taints := c.kubectl(t, "get", "node", "agent-01", "-o", "jsonpath={.spec.taints[*].key}")
		if quota := c.quota(t); quota != 0 || strings.Contains(taints, "interference") {
			return fmt.Errorf("cruncher has %g cores, taints %s", quota, taints)
		}

		return nil
	})

	for _, name := range chaosCertificates {
		eventually(t, "a valid certificate", func() error { return c.servingCertificate(t, name) })
	}

	eventually(t, "a node for each pod of crane-scheduler", func() error { return c.scheduled(t) })
	c.kubectl(t, "delete", "ehpa", "storefront", "-n", "shop")

	for i := range workloads {
		c.kubectl(t, "patch", "recommendation", fmt.Sprintf("generous-%d", i), "-n", "shop", "--type=merge", "-p", `{"spec":{"adoptionType":"Status"}}`)
	}

	eventually(t, "original sizes, and no HPA or TimeSeriesPrediction", func() error {
		if left := c.kubectl(t, "get", "hpa,tsp", "-n", "shop", "-o", "name"); strings.Contains(left, "ehpa-storefront") {
			return fmt.Errorf("left behind: %s", left)
		}

		return sizes(1000)
	})

	c.interrupt(t)
}

// podsOf returns the pods that are lowered.
func (c *chaos) podsOf(t *testing.T) []corev1.Pod {
	t.Helper()

	var list struct{ Items []corev1.Pod }
	c.read(t, &list, "pods", "-n", "shop")

	var out []corev1.Pod
	for _, p := range list.Items {
		if strings.HasPrefix(p.Labels["app"], "generous-") {
			out = append(out, p)
		}
	}

	return out
}

// scheduled returns an error unless the pods of the workload that crane-scheduler schedules run.
func (c *chaos) scheduled(t *testing.T) error {
	t.Helper()

	var storefront appsv1.Deployment
	c.read(t, &storefront, "deployment", "storefront", "-n", "shop")

	if want := *storefront.Spec.Replicas; storefront.Status.ReadyReplicas != want {
		return fmt.Errorf("storefront has %d ready pods, want %d", storefront.Status.ReadyReplicas, want)
	}

	return nil
}
