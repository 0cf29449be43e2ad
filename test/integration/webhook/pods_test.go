// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/test/integration/harness"
)

const qosConfig = `
apiVersion: ensurance.crane.io/v1alpha1
kind: QOSConfig
qosInitializer:
  enable: true
  selector: {matchLabels: {workload: batch}}
  initContainerTemplate: {name: qos, image: i, volumeMounts: [{name: cgroup, mountPath: /sys/fs/cgroup}]}
  volumeTemplate: {name: cgroup, hostPath: {path: /sys/fs/cgroup}}
`

// TestQOSInitializer: new pods of low CPU priority get their init container, others and those of system namespaces do not.
func TestQOSInitializer(t *testing.T) {
	c := clients(t)
	name := filepath.Join(t.TempDir(), "qos.yaml")
	if err := os.WriteFile(name, []byte(qosConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, "--feature-gates=QOSInitializer=true", "--qos-config-file="+name)
	keep(t, strings.Replace(fmt.Sprintf(podQOS, "labelSelector: {matchLabels: {workload: batch}}, resourceQOS: {cpuQOS: {cpuPriority: 7}}, "+
		"scopeSelector: {matchExpressions: [{scopeName: QOSClass, operator: In, values: [BestEffort]}]}"), "name: p}", "name: batch}", 1))
	changed := func(pod *corev1.Pod) bool {
		return slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == "qos" }) &&
			slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "cgroup" })
	}
	eventually(t, "a batch pod gets its init container", func(ctx context.Context) error {
		pod, err := newPod(ctx, c, nil)
		if err == nil && !changed(pod) {
			err = errors.New("it has none")
		}
		return err
	})
	for name, change := range map[string]func(*corev1.Pod){
		"another label": func(p *corev1.Pod) { p.Labels["workload"] = "web" },
		"another class": func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": quantity("1")}
		},
		"of the system":       func(p *corev1.Pod) { p.Namespace = "kube-system" },
		"of Crane":            func(p *corev1.Pod) { p.Namespace = namespace },
		"that asked for none": func(p *corev1.Pod) { p.Labels["webhook.crane.io/ignore"] = "" },
	} {
		if pod, err := newPod(t.Context(), c, change); err != nil || changed(pod) {
			t.Errorf("a pod %s: changed, or %v", name, err)
		}
	}
	eventually(t, "the metric counts", func(ctx context.Context) error {
		page, err := harness.Get(ctx, "http://"+p.metrics+"/metrics")
		if err == nil && !strings.Contains(page, `crane_pod_mutations_total{mutator="qos-initializer",result="changed"}`) {
			err = errors.New("no crane_pod_mutations_total")
		}
		if err == nil && !strings.Contains(page, `crane_certificate_expiry_timestamp_seconds{certificate="serving",secret="craned-certificates"}`) {
			err = errors.New("no crane_certificate_expiry_timestamp_seconds")
		}
		return err
	})
}

// TestReadiness: the readiness of webhooks is told by its name, and does not wait for the data source, which is not there.
func TestReadiness(t *testing.T) {
	p := startCraned(t)
	eventually(t, "webhooks are ready", func(ctx context.Context) error {
		_, err := harness.Get(ctx, "http://"+p.probes+"/readyz/webhooks")
		return err
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.probes+"/readyz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		t.Error("craned is ready without its data source; this test says nothing then")
	}
	c := clients(t)
	service, err := c.CoreV1().Services(namespace).Get(t.Context(), "craned-webhook", metav1.GetOptions{})
	if err != nil || !service.Spec.PublishNotReadyAddresses {
		t.Errorf("the Service of webhooks waits for readiness: %v", err)
	}
}

// TestWebhooksCanBeLeftOut: with --webhook-enabled=false nobody listens and no Secret is made; with a directory of certificates those
// are served and the Secret is left alone.
func TestWebhooksCanBeLeftOut(t *testing.T) {
	c := clients(t)
	ctx := t.Context()
	if err := c.CoreV1().Secrets(namespace).Delete(ctx, secret, metav1.DeleteOptions{}); err != nil && !strings.Contains(err.Error(), "not found") {
		t.Fatal(err)
	}
	off := startCraned(t, "--webhook-enabled=false")
	eventually(t, "craned runs", func(ctx context.Context) error {
		_, err := harness.Get(ctx, "http://"+off.probes+"/readyz/caches")
		return err
	})
	if _, err := leaf(ctx, off.webhooks); err == nil {
		t.Error("somebody serves webhooks")
	}
	dir := t.TempDir()
	cert, key, err := control.IssueServing("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"tls.crt": cert, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	own := startCraned(t, "--webhook-cert-dir="+dir)
	eventually(t, "the certificate of the directory is served", func(ctx context.Context) error {
		served, err := leaf(ctx, own.webhooks)
		if err == nil && served.Issuer.CommonName != "crane-control-plane" {
			err = fmt.Errorf("it is %s's", served.Issuer)
		}
		return err
	})
	if _, err := c.CoreV1().Secrets(namespace).Get(ctx, secret, metav1.GetOptions{}); err == nil {
		t.Error("a Secret was made all the same")
	}
}
