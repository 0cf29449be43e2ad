// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestPlaygroundOnceShowsEveryTrace(t *testing.T) {
	for _, resource := range []string{"cpu", "memory"} {
		t.Run(resource, func(t *testing.T) {
			out, _ := run(t, binary(t, "playground"), "--once", "--traces", traces(t), "--resource", resource, "--nodes", "3", "--days", "8")
			for i := range 8 {
				name := fmt.Sprintf("workload-%d", i)
				line := regexp.MustCompile(`(?m)^.*\b` + name + `\b.*$`).FindString(out)
				if !regexp.MustCompile(`[1-9][0-9]*m?\s`).MatchString(strings.ReplaceAll(line, name, "")) {
					t.Errorf("recommendation for %s: %q, want an amount\n%s", name, line, out)
				}
			}
		})
	}
}

// TestPlaygroundRefuses: invalid options are rejected at once with the name of the flag.
func TestPlaygroundRefuses(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--only craned", "--only"},
		{"--only etcd", "--only"},
		{"--nodes 0 --days 0", "--days"},
		{"--speed 0", "--speed"},
		{"--resource disk", "--resource"},
		{"--traces /nowhere", "--traces"},
		{"--demo nowhere", "--demo"},
		{"--demo ./nowhere.yaml", "nowhere.yaml"},
		{"--data-dir /dev/null", "/dev/null"},
		{"--bin-dir /nowhere", "--bin-dir"},
		{"extra", "extra"},
	} {
		r := execute(t, binary(t, "playground"), append(strings.Fields(c.args), "--once")...)
		if r.code == 0 || !strings.Contains(r.errOut, c.want) || strings.Contains(r.errOut, "goroutine ") || r.out != "" {
			t.Errorf("playground %s: exit code %d, says %q, want %q in it", c.args, r.code, r.errOut, c.want)
		}
	}
}

// TestPlaygroundServesAUser covers the use of one playground, from kubectl to Ctrl-C.
func TestPlaygroundServesAUser(t *testing.T) {
	s := start(t, "--nodes", "4", "--workloads", "16", "--days", "8")
	t.Run("kubectl", func(t *testing.T) { testKubectl(t, s) })
	t.Run("inventories agree", func(t *testing.T) { testInventories(t, s) })
	t.Run("bad samples", func(t *testing.T) { testBadSamples(t, s) })
	t.Run("controllers act", func(t *testing.T) { testControllers(t, s) })
	t.Run("children come back", func(t *testing.T) { testChildren(t, s) })
	t.Run("interrupt leaves nothing behind", func(t *testing.T) { s.interrupt(t) })
}

func testKubectl(t *testing.T, s *session) {
	for _, c := range []struct{ args, want string }{
		{"get recommendations -A", `(?s)(-resource-\w+ .*cpu \S+ → .*True.*){8}`},
		{"get recommendationrules", `playground\s+1h`},
		{"explain recommendation.status", `recommendedInfo`},
		{"explain recommendationrule.spec.resourceSelectors", `labelSelector`},
		{"explain effectivehorizontalpodautoscaler.spec", `prediction`},
		{"explain podqos.spec", `resourceQOS`},
		{"explain noderesourcetopology", `zones`},
		{"top nodes", `node-01\s+\d+m\s+\d+%\s+\d+Mi`},
		{"top pods -A", `(?s)(\d+m\s+\d+Mi.*){20}`},
		{"get --raw /readyz", `^ok$`},
		{"describe recommendation -n shop", `Recommended Info:\s+\{"spec"`},
		{"logs -n shop deployment/checkout -c checkout", `simulated node`},
		{"get --raw /apis/metrics.k8s.io/v1beta1/nodes", `NodeMetricsList`},
	} {
		if out := s.kubectl(t, strings.Fields(c.args)...); !regexp.MustCompile(c.want).MatchString(out) {
			t.Errorf("kubectl %s: want %s in\n%s", c.args, c.want, out)
		}
	}

	eventually(t, "the autoscalers read use", func() error {
		out := s.kubectl(t, "get", "hpa", "-A")
		if !regexp.MustCompile(`cpu: \d+%/\d+%`).MatchString(out) || strings.Contains(out, "<unknown>") {
			return errors.New(out)
		}

		return nil
	})
}

// testInventories: the workloads of the Kubernetes API and of kube-state-metrics lead to the same results. Only the API
// provides autoscalers, so CPU on which one scales keeps its request only there.
func testInventories(t *testing.T, s *session) {
	scaled := map[string]bool{}
	for target := range strings.FieldsSeq(s.kubectl(t, "get", "hpa", "-A", "-o",
		"jsonpath={range .items[*]}{.metadata.namespace}/{.spec.scaleTargetRef.kind}/{.spec.scaleTargetRef.name} {end}")) {
		scaled[target] = true
	}

	if len(scaled) == 0 {
		t.Fatal("the playground has no autoscaler, want one")
	}

	autoscaled := func(key string) bool {
		parts := strings.Split(key, "/")
		return len(parts) == 5 && parts[4] == "cpu" && scaled[strings.Join(parts[:3], "/")]
	}
	fromAPI := recommend(t, "--prometheus", s.prometheus, "--kubeconfig", s.kubeconfig)

	fromMetrics := recommend(t, "--prometheus", s.prometheus)
	if len(fromMetrics) < 30 {
		t.Fatalf("numbers for %d containers and resources, want 30 or more: %v", len(fromMetrics), fromMetrics)
	}

	for key, want := range fromAPI {
		if got, ok := fromMetrics[key]; ok && got != want && !autoscaled(key) {
			t.Errorf("%s: %v without a kubeconfig, want %v as with one", key, got, want)
		} else if !ok && !strings.Contains(key, "/CronJob/") { // between runs a CronJob has no pod
			t.Errorf("%s is not found without a kubeconfig, want it as with one", key)
		}
	}

	for key := range fromMetrics {
		if _, ok := fromAPI[key]; !ok {
			t.Errorf("%s is not found with a kubeconfig, want it as without one", key)
		}
	}
}

func testControllers(t *testing.T, s *session) {
	s.kubectl(t, "scale", "deployment/gateway", "-n", "payments", "--replicas=5")
	s.kubectl(t, "delete", "deployment/checkout", "-n", "shop")
	s.kubectl(t, "create", "quota", "one", "-n", "data", "--hard=pods=1")
	s.kubectl(t, "create", "job", "now", "-n", "analytics", "--from=cronjob/report-nightly")
	pod := strings.TrimSpace(s.kubectl(t, "get", "pods", "-n", "search", "-l", "app.kubernetes.io/name=query", "-o", "jsonpath={.items[0].metadata.name}"))
	s.kubectl(t, "patch", "pod", pod, "-n", "search", "--subresource", "resize", "-p",
		`{"spec":{"containers":[{"name":"query","resources":{"requests":{"cpu":"2500m"}}}]}}`)

	for _, c := range []struct{ what, args, want string }{
		{"five replicas", "get deployment gateway -n payments -o jsonpath={.status.readyReplicas}", `^5$`},
		{"the recommendation goes with its target", "get recommendations -n shop -o name -l analysis.crane.io/recommendation-target-name=checkout", `^$`},
		{"the quota counts", "get quota one -n data -o jsonpath={.status.used.pods}", `^[1-9]`},
		{"the job has a pod", "get job now -n analytics -o jsonpath={.status.active}{.status.succeeded}", `^1$`},
		{"the pod is resized in place", "get pod " + pod + " -n search -o jsonpath={.status.containerStatuses[0].resources.requests.cpu}/{.status.containerStatuses[0].restartCount}", `^2500m/0$`},
	} {
		eventually(t, c.what, func() error {
			if out := s.kubectl(t, strings.Fields(c.args)...); !regexp.MustCompile(c.want).MatchString(out) {
				return fmt.Errorf("kubectl %s: %s", c.args, out)
			}

			return nil
		})
	}
}

// testChildren kills one child process after the other: each exit is reported and the process restarts.
func testChildren(t *testing.T, s *session) {
	for _, name := range []string{"craned", "scheduler", "apiserver"} {
		before := s.child(t, name)
		if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}

		eventually(t, name+" comes back", func() error {
			said := regexp.MustCompile(`(?m)^.*\b` + name + ` \(pid ` + strconv.Itoa(before) + `\) ended .*killed; restart in .*\n(    .*\n)+`)
			if !said.MatchString(s.output()) {
				return errors.New("the playground does not report the exit with the last lines")
			}

			if now := s.child(t, name); now == before || now == 0 {
				return fmt.Errorf("process %d, it was %d", now, before)
			}

			return nil
		})
	}

	eventually(t, "the API server is ready again", func() error {
		r := execute(t, binary(t, "kubectl"), "--kubeconfig", s.kubeconfig, "get", "--raw", "/readyz")
		if r.code != 0 {
			return errors.New(r.errOut)
		}

		return nil
	})
}

// child is the process id of a child, 0 where there is none.
func (s *session) child(t *testing.T, name string) int {
	t.Helper()

	for _, p := range processes(t, s.state) {
		fields := strings.Fields(p.line)
		if strings.HasSuffix(fields[0], "/"+name) || strings.HasSuffix(fields[0], "/controlplane") && fields[1] == name {
			return p.pid
		}
	}

	return 0
}
