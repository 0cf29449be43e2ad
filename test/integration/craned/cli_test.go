// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"crane.io/crane/internal/cli"
)

// output is the part of the output of crane recommend -o json that the tests check.
type output struct {
	Workloads []struct {
		Namespace, Kind, Name, State string
		Containers                   []struct {
			Name        string
			CPU, Memory struct {
				Current, Recommended struct {
					Request struct{ Value float64 }
				}
			}
		}
	}
}

// crane runs crane recommend and parses its output.
func crane(t *testing.T, args ...string) (result output, code int, errOut string) {
	t.Helper()

	var out, stderr bytes.Buffer
	code = cli.Main(append([]string{"crane", "recommend", "--no-cache", "-o", "json"}, args...), strings.NewReader(""), &out, &stderr)

	if out.Len() > 0 {
		if err := json.Unmarshal(out.Bytes(), &result); err != nil {
			t.Fatalf("parsing the report of crane recommend: %v:\n%s", err, out.String())
		}
	}

	return result, code, stderr.String()
}

// TestRecommendInventories checks that the workloads of the API server and those of kube-state-metrics have the same
// recommendations.
func TestRecommendInventories(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)
	create(t, c, deployment("shop", "web"), deployment("shop", "young"), statefulSet("shop", "db", "postgres"), deployment("bank", "web"))
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))

	for name, args := range map[string][]string{
		"Kubernetes":         {"--kubeconfig", control.Kubeconfig(), "-n", "shop"},
		"kube-state-metrics": {"-n", "shop"},
	} {
		t.Run(name, func(t *testing.T) {
			got, code, errOut := crane(t, append(args, "--prometheus", prom.URL())...)
			if code != 0 {
				t.Fatalf("crane recommend: exit %d, want 0: %s", code, errOut)
			}

			cpu := map[string]float64{}
			for _, w := range got.Workloads {
				if w.Namespace != "shop" {
					t.Errorf("workload of namespace %s, want only shop", w.Namespace)
				}

				if w.State != "Ready" {
					cpu[w.Kind+"/"+w.Name] = 0
					continue
				}

				one := w.Containers[0]
				cpu[w.Kind+"/"+w.Name] = one.CPU.Recommended.Request.Value

				if one.CPU.Current.Request.Value != 1 || one.Memory.Current.Request.Value != 1024*mib {
					t.Errorf("%s: current requests %+v, want 1 CPU and 1024 MiB", w.Name, one)
				}
			}

			// The default policy adds a margin.
			for name, used := range map[string]float64{"Deployment/web": 0.2, "StatefulSet/db": 1.5} {
				if v := cpu[name]; v < used || v > 1.3*used {
					t.Errorf("%s uses %g cores, recommended are %g, want that plus a margin", name, used, v)
				}
			}

			if v, found := cpu["Deployment/young"]; !found || v != 0 {
				t.Errorf("the workload with one day of history: %v, %t, want it without a recommendation", v, found)
			}
		})
	}
}

// TestRecommendWithoutCluster checks that a cluster must answer if --kubeconfig names it, but not if it comes from the
// environment.
func TestRecommendWithoutCluster(t *testing.T) {
	prom := servePrometheus(t)
	missing := filepath.Join(t.TempDir(), "none")
	if _, code, errOut := crane(t, "--prometheus", prom.URL(), "--kubeconfig", missing); code != 1 || !strings.Contains(errOut, missing) {
		t.Errorf("exit %d, want 1 and the path of the kubeconfig: %s", code, errOut)
	}
	if _, code, errOut := crane(t, "--prometheus", prom.URL(), "-n", "nowhere"); code != 3 || !strings.Contains(errOut, "no pod in namespace nowhere") {
		t.Errorf("exit %d, want 3 without a pod in the namespace: %s", code, errOut)
	}
}
