// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"crane.io/crane/config"
	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/process"
	"crane.io/crane/test/controlplanetest"
	"crane.io/crane/test/integration/harness"
)

// TestBadConfiguration: an invalid configuration ends the start with an error that names the file and the field.
func TestBadConfiguration(t *testing.T) {
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte("apiVersion: scheduler.policy.crane.io/v1alpha1\nkind: DynamicSchedulerPolicy\nspec:\n  predicates: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	dynamic := func(args string) string {
		return strings.ReplaceAll(topologyProfile(args), "NodeResourceTopologyMatch", "Dynamic")
	}
	for name, c := range map[string]struct{ profile, want string }{
		"unknown field":        {topologyProfile("{resources: [cpu]}"), `.profiles[0].pluginConfig[0]: strict decoding error: decoding args for plugin NodeResourceTopologyMatch: strict decoding error: unknown field "resources"`},
		"bad value":            {topologyProfile("{missingTopology: Maybe}"), `args.missingTopology: Unsupported value: "Maybe"`},
		"duplicate":            {topologyProfile("{topologyAwareResources: [cpu, memory, cpu]}"), `args.topologyAwareResources[2]: Duplicate value: "cpu"`},
		"unknown field, load":  {dynamic("{policyPath: /x}"), `unknown field "policyPath"`},
		"no policy file":       {dynamic("{policyConfigPath: /does/not/exist.yaml}"), `/does/not/exist.yaml`},
		"unknown policy field": {dynamic("{policyConfigPath: " + policy + "}"), `unknown field "spec.predicates"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := setup{name: "bad", profile: c.profile}
			args := configure(t, &s)
			p, err := process.Start(process.Spec{Name: "crane-scheduler", Path: binary, Args: append(args, "--secure-port=0"), LastLines: 60})
			if err != nil {
				t.Fatal(err)
			}

			select {
			case <-p.Done():
			case <-time.After(timeout):
				_ = p.Stop(context.Background())
				t.Fatal("the scheduler starts, want it to end with an error")
			}

			out := strings.Join(p.LastLines(), "\n")
			if p.Err() == nil || !strings.Contains(out, c.want) || !strings.Contains(out, strings.TrimPrefix(args[0], "--config=")) {
				t.Errorf("ended with %v and\n%s\nwant %q and the path of the file", p.Err(), out, c.want)
			}
		})
	}
}

// TestMissingDefinition: without the CustomResourceDefinition the scheduler starts, places pods with whole CPUs and
// counts them; once it exists, the scheduler reads it without a restart. The definition here accepts any name, like
// gocrane's.
func TestMissingDefinition(t *testing.T) {
	bare := controlplanetest.ForTest(t, controlplane.Options{})
	own, err := kubernetes.NewForConfig(bare.Config())
	if err != nil {
		t.Fatal(err)
	}

	if err := harness.Install(t.Context(), bare.Config(), "scheduler-test", func(kind string) bool { return kind != "CustomResourceDefinition" }); err != nil {
		t.Fatal(err)
	}

	admin := controlplane.CertificateUser("admin", "system:masters")
	s := startScheduler(t, setup{control: bare, profile: topologyProfile("{}"), user: &admin})
	f := &fixture{TB: t, client: own, process: s, scheduler: s.name, label: s.name}
	f.node("bare", 64, nil)
	f.pod("before", "2")

	if pod := f.awaitPlaced("before"); zones(t, pod) != "" {
		t.Errorf("without zones the pod got %q, want no zones", zones(t, pod))
	}
	if got := s.metric(t, "crane_scheduler_topology_available"); got != "0" {
		t.Errorf("available is %q, want 0", got)
	}
	if got := s.metric(t, `crane_scheduler_topology_unknown_total{reason="missing",result="pass"}`); got != "1" {
		t.Errorf("unknown is %q, want 1", got)
	}

	crd, err := fs.ReadFile(config.CRDs, "crd/topology.crane.io_noderesourcetopologies.yaml")
	if err != nil {
		t.Fatal(err)
	}

	lax := strings.ReplaceAll(string(crd), "self.name.matches('^node[0-9]+$')", "true")
	objects, err := manifest.ParseString(lax)
	if err != nil {
		t.Fatal(err)
	}

	applier, err := manifest.NewApplier(bare.Config(), "scheduler-test")
	if err != nil {
		t.Fatal(err)
	}

	if err := applier.Apply(t.Context(), append(objects, laxTopology())...); err != nil {
		t.Fatal(err)
	}

	eventually(t, "the topology is read", func() string {
		if got := s.metric(t, "crane_scheduler_topology_nodes"); got != "1" {
			return "crane_scheduler_topology_nodes is " + got
		}

		return ""
	})

	f.pod("after", "3")
	if got := zones(t, f.awaitPlaced("after")); got != "a.b-10=3" {
		t.Errorf("the pod has the zones %q, want those of the odd name", got)
	}

	f.pod("too-large", "5")
	f.awaitPending("too-large", "no zone is as large as cpu=5")
}

// laxTopology returns a topology with zone names that Crane's definition rejects.
func laxTopology() *unstructured.Unstructured {
	capacity := func(cpu string) any {
		return map[string]any{"capacity": map[string]any{"cpu": cpu}}
	}

	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "topology.crane.io/v1alpha1", "kind": "NodeResourceTopology",
		"metadata":           map[string]any{"name": "bare"},
		"craneManagerPolicy": map[string]any{"cpuManagerPolicy": "Static", "topologyManagerPolicy": "SingleNUMANodePodLevel"},
		"zones": []any{
			map[string]any{"name": "x", "type": "Node", "resources": capacity("2")},
			map[string]any{"name": "a.b-10", "type": "Node", "resources": capacity("4")},
		},
	}}
}

// TestShippedConfigurations runs crane-scheduler with the two files of config/, unchanged except for paths: as a second
// scheduler with its service account, and in place of kube-scheduler as its user. Each acquires its own lease, and each
// places the pods that name it.
func TestShippedConfigurations(t *testing.T) {
	objects, err := manifest.ReadDir(config.Manifests, ".")
	if err != nil {
		t.Fatal(err)
	}

	data := map[string]map[string]string{}
	for _, o := range objects {
		if o.GetKind() == "ConfigMap" {
			var m corev1.ConfigMap
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &m); err != nil {
				t.Fatal(err)
			}

			data[m.Name] = m.Data
		}
	}

	replaceKubeScheduler(t)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte(data["crane-node-load-policy"]["policy.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}

	own := controlplane.CertificateUser("system:kube-scheduler")
	all := t // both run until the parent test ends
	for _, c := range []struct {
		name, file, namespace, lease, connection string
		user                                     *controlplane.User
	}{
		{"crane-scheduler", "config.yaml", "crane-system", "crane-scheduler", "clientConnection:\n", nil},
		{"default-scheduler", "config-only.yaml", "kube-system", "kube-scheduler", "  kubeconfig: /etc/kubernetes/scheduler.conf\n", &own},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := data["crane-scheduler"][c.file]
			if !strings.Contains(file, c.connection) || !strings.Contains(file, "/etc/crane/policy.yaml") {
				t.Fatalf("%s has another connection or policy:\n%s\nwant %s", c.file, file, c.connection)
			}

			kubeconfig := "  kubeconfig: KUBECONFIG\n"
			if strings.HasPrefix(c.connection, "clientConnection") {
				kubeconfig = c.connection + kubeconfig
			}

			file = strings.NewReplacer(c.connection, kubeconfig, "/etc/crane/policy.yaml", policy,
				"policyConfigPath: /etc/crane/policy.yaml", "policyConfigPath: "+policy+"\n      explainAddress: none").Replace(file)
			s := startScheduler(all, setup{name: c.name, config: file, user: c.user})

			eventually(t, "it has its lease", func() string {
				lease, err := client.CoordinationV1().Leases(c.namespace).Get(t.Context(), c.lease, metav1.GetOptions{})
				if err != nil {
					return err.Error()
				}

				return held(lease)
			})

			f := newFixture(t, s)
			f.machine("shipped-"+c.name, single, []string{"node0"}, 4)
			f.pod("shipped-"+c.name, "2")

			if got := zones(t, f.awaitPlaced("shipped-"+c.name)); got != "node0=2" {
				t.Errorf("the pod has the zones %q, want node0=2", got)
			}
		})
	}
}

// replaceKubeScheduler installs the component that grants kube-scheduler's user the rights of the plugins.
func replaceKubeScheduler(t *testing.T) {
	t.Helper()

	objects, err := manifest.ReadDir(config.Components, "components/replace-kube-scheduler")
	if err != nil {
		t.Fatal(err)
	}

	applier, err := manifest.NewApplier(control.Config(), "replace-kube-scheduler")
	if err != nil {
		t.Fatal(err)
	}

	if err := applier.Apply(t.Context(), objects...); err != nil {
		t.Fatal(err)
	}
}

func held(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" {
		return "no holder"
	}

	return ""
}
