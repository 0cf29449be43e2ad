// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/realcluster"
	"crane.io/crane/internal/testbed/realnode"
	"crane.io/crane/test/e2e/node"
)

const (
	// agentsUnavailable is maxUnavailable of the DaemonSet, 10% of three nodes rounded up.
	agentsUnavailable = 1
	callInterval      = 50 * time.Millisecond
)

// upgrade observes an upgrade.
type upgrade struct {
	cancel context.CancelFunc
	group  sync.WaitGroup

	mu                     sync.Mutex
	missing, agents, calls int // the largest numbers of missing replicas and agents, and the calls of a webhook
	failed                 []string
	node                   *node.Node
	failOpen               string
}

// watchUpgrade starts to observe Deployments and the DaemonSet of Crane, and to call a validating webhook.
func watchUpgrade(t *testing.T, n *node.Node) *upgrade {
	t.Helper()

	ctx, cancel := context.WithCancel(t.Context())
	u := &upgrade{cancel: cancel, node: n, failOpen: webhookFailures(t, n)}

	apps := n.Client.AppsV1()
	deployments, err := apps.Deployments(realcluster.Namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	agents, err := apps.DaemonSets(realcluster.Namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	u.group.Go(func() {
		for event := range deployments.ResultChan() {
			if d, ok := event.Object.(*appsv1.Deployment); ok {
				u.mu.Lock()
				u.missing = max(u.missing, int(*d.Spec.Replicas-d.Status.AvailableReplicas))
				u.mu.Unlock()
			}
		}
	})

	u.group.Go(func() {
		for event := range agents.ResultChan() {
			if d, ok := event.Object.(*appsv1.DaemonSet); ok {
				u.mu.Lock()
				u.agents = max(u.agents, int(d.Status.NumberUnavailable))
				u.mu.Unlock()
			}
		}
	})

	rules, err := dynamic.NewForConfig(n.Config)
	if err != nil {
		t.Fatal(err)
	}

	u.group.Go(func() {
		ticker := time.NewTicker(callInterval)
		defer ticker.Stop()

		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				u.call(ctx, rules)
			}
		}
	})

	return u
}

// call creates a RecommendationRule in a dry run, which craned's webhook validates.
func (u *upgrade) call(ctx context.Context, client dynamic.Interface) {
	rule := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "analysis.crane.io/v1alpha1", "kind": "RecommendationRule", "metadata": map[string]any{"name": "probe"},
		"spec": map[string]any{
			"namespaceSelector": map[string]any{"any": true}, "recommenders": []any{map[string]any{"name": "Resource"}},
			"resourceSelectors": []any{map[string]any{"kind": "Deployment", "apiVersion": "apps/v1"}},
		},
	}}

	resource := schema.GroupVersionResource{Group: "analysis.crane.io", Version: "v1alpha1", Resource: "recommendationrules"}
	_, err := client.Resource(resource).Create(ctx, rule, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	u.mu.Lock()
	defer u.mu.Unlock()

	u.calls++

	if err != nil && ctx.Err() == nil {
		u.failed = append(u.failed, err.Error())
	}
}

// end ends the observation and checks it.
func (u *upgrade) end(t *testing.T) {
	t.Helper()

	u.cancel()
	u.group.Wait()
	t.Logf("during the upgrade: %d replicas missing at most, %d agents unavailable, %d of %d webhook calls failed", u.missing, u.agents, len(u.failed), u.calls)

	if u.missing > 0 || u.agents > agentsUnavailable || len(u.failed) > 0 || u.calls == 0 {
		t.Errorf("want 0, at most %d, 0 of some: %v", agentsUnavailable, u.failed)
	}
	if now := webhookFailures(t, u.node); now != u.failOpen {
		t.Errorf("the API server went on without a webhook:\nbefore %s\nafter %s, want no more\n%s", u.failOpen, now, failedCalls(t))
	}
}

// webhookFailures returns the API server's series of webhooks that it could not call.
func webhookFailures(t *testing.T, n *node.Node) string {
	t.Helper()

	text, err := n.Client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}

	var lines []string
	for line := range strings.SplitSeq(string(text), "\n") {
		if strings.HasPrefix(line, "apiserver_admission_webhook_fail_open_count") || strings.HasPrefix(line, "apiserver_admission_webhook_rejection_count") && strings.Contains(line, "calling_webhook_error") {
			lines = append(lines, line)
		}
	}

	return strings.Join(lines, "\n")
}

// failedCalls returns the lines of the API server's log with the reasons of failed calls.
func failedCalls(t *testing.T) string {
	t.Helper()

	content, err := os.ReadFile(filepath.Join(node.Open(t).Control().Dir(), "logs", string(controlplane.APIServer)+".log"))
	if err != nil {
		t.Error(err)
	}

	var lines []string
	for line := range strings.Lines(string(content)) {
		if strings.Contains(line, "ailed calling webhook") {
			lines = append(lines, line)
		}
	}

	return strings.Join(lines, "")
}

func realNodes(nodes []*node.Node) []*realnode.Node {
	out := make([]*realnode.Node, len(nodes))
	for i, n := range nodes {
		out[i] = n.Node
	}

	return out
}

// snapshot lists the objects of the cluster, except those that come and go by themselves.
func snapshot(t *testing.T, n *node.Node) []string {
	t.Helper()

	lists, err := n.Client.Discovery().ServerPreferredResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		t.Fatal(err)
	}

	client, err := metadata.NewForConfig(n.Config)
	if err != nil {
		t.Fatal(err)
	}

	var names []string
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}

		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || slices.Contains([]string{"Event", "Lease", "EndpointSlice", "Endpoints", "Pod", "ReplicaSet", "ControllerRevision", "CSINode", "PodMetrics", "NodeMetrics"}, r.Kind) {
				continue
			}

			objects, err := client.Resource(group.WithResource(r.Name)).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				continue // A kind that is being removed.
			}

			for i := range objects.Items {
				names = append(names, fmt.Sprintf("%s.%s %s/%s", r.Kind, group.Group, objects.Items[i].Namespace, objects.Items[i].Name))
			}
		}
	}

	slices.Sort(names)
	return names
}

// compareSnapshot returns an error that lists the objects that were not there before.
func compareSnapshot(before, after []string) error {
	var errs []error
	for _, name := range after {
		if !slices.Contains(before, name) {
			errs = append(errs, errors.New(name))
		}
	}

	if len(errs) > 0 {
		return fmt.Errorf("left: %w", errors.Join(errs...))
	}

	return nil
}
