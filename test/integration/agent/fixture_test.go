// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/hostrecording"
	"crane.io/crane/test/integration/harness"
)

// waitTimeout bounds each wait. On an idle machine a wait takes seconds.
const waitTimeout = 90 * time.Second

func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	harness.Eventually(t.Context(), t, waitTimeout, what, check)
}

func newClient(t *testing.T) client.Client {
	t.Helper()

	c, err := harness.NewClient(control.Config(), ensurancev1alpha1.AddToScheme, predictionv1alpha1.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}

	return c
}

func newNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": name}}}
}

// recordedHost writes the files of a host of four cores with half of its memory in use.
func recordedHost(t *testing.T) string {
	t.Helper()
	return hostrecording.ForTest(t, "v2-systemd-containerd").Dir
}

// outage stops the API server and returns the function that starts it again, at the end of the test at the latest.
func outage(t *testing.T) (back func()) {
	t.Helper()

	if err := control.StopComponent(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}

	back = sync.OnceFunc(func() {
		if err := control.StartComponent(context.WithoutCancel(t.Context()), controlplane.APIServer); err != nil {
			t.Error(err)
		}
	})

	t.Cleanup(back)
	return back
}

// agent is a process under test.
type agent struct {
	*harness.Process

	url, state string
	killed     bool
}

// Kill kills the agent.
func (a *agent) Kill() {
	a.killed = true
	a.Process.Kill()
}

// kubeconfig returns the kubeconfig of the agent's account.
func kubeconfig(t *testing.T) string {
	t.Helper()

	path, err := control.KubeconfigFor(t.Context(), "crane-agent", controlplane.ServiceAccount("crane-system", "crane-agent"))
	if err != nil {
		t.Fatal(err)
	}

	return path
}

// startAgent runs a node's agent with the permissions of config/rbac until it is ready; without --enforce as a dry run.
func startAgent(t *testing.T, node string, flags ...string) *agent {
	t.Helper()

	given := func(name string) bool {
		return slices.ContainsFunc(flags, func(f string) bool { return f == "--"+name || strings.HasPrefix(f, "--"+name+"=") })
	}
	address := harness.FreeAddress(t)
	state := t.TempDir()

	args := append([]string{"--hostname-override=" + node, "--bind-address=" + address, "--collect-interval=200ms"}, flags...)
	if !given("enforce") {
		args = append(args, "--dry-run")
	}
	if !given("evict-also") {
		args = append(args, "--evict-also=bare-pods") // most tests run pods without controllers
	}

	for name, value := range map[string]func() string{
		"kubeconfig": func() string { return kubeconfig(t) }, "host-root": func() string { return recordedHost(t) }, "state-dir": func() string { return state },
	} {
		if !given(name) {
			args = append(args, "--"+name+"="+value())
		}
	}

	a := &agent{Process: harness.Start(t, waitTimeout, binary, args...), url: "http://" + address, state: state}
	t.Cleanup(func() {
		a.Stop(t)
		if a.Err() != nil && !a.killed {
			t.Errorf("the agent ended with %v, want no error", a.Err())
		}
	})

	eventually(t, "the agent is ready", func(ctx context.Context) error {
		select {
		case <-a.Done():
			t.Fatalf("the agent has ended with %v, want it ready", a.Err())
		default:
		}

		_, err := harness.Get(ctx, a.url+"/readyz")
		return err
	})

	return a
}

// awaitLog waits for a log line with all of the words.
func (a *agent) awaitLog(t *testing.T, words ...string) {
	t.Helper()

	eventually(t, fmt.Sprintf("the log says %q", words), func(context.Context) error {
		for line := range strings.Lines(a.Log.String()) {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
				return nil
			}
		}

		return errors.New("no such line")
	})
}

// metric returns the value of a series at /metrics.
func (a *agent) metric(ctx context.Context, series string) (string, error) {
	page, err := harness.Get(ctx, a.url+"/metrics")
	if err != nil {
		return "", err
	}

	value, ok := harness.SeriesValue(page, series)
	if !ok {
		return "", fmt.Errorf("no series %s", series)
	}

	return value, nil
}
