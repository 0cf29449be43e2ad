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

const statefulSet = `{apiVersion: apps/v1, kind: StatefulSet, metadata: {%sname: %s}, spec: {serviceName: x, selector: {matchLabels: {app: x}},
  template: {metadata: {labels: {app: x}}, spec: {containers: [{name: app, image: i}]}}}}`

// TestQOSInitializer checks that only new pods of low CPU priority outside of system namespaces that have not opted out get the init container.
func TestQOSInitializer(t *testing.T) {
	c := newClientset(t)
	name := filepath.Join(t.TempDir(), "qos.yaml")
	if err := os.WriteFile(name, []byte(qosConfig), 0o600); err != nil {
		t.Fatal(err)
	}

	p := startWebhooks(t, "--feature-gates=QOSInitializer=true", "--qos-config-file="+name)
	createUntilEnd(t, strings.Replace(fmt.Sprintf(podQOS, "labelSelector: {matchLabels: {workload: batch}}, resourceQOS: {cpuQOS: {cpuPriority: 7}}, "+
		"scopeSelector: {matchExpressions: [{scopeName: QOSClass, operator: In, values: [BestEffort]}]}"), "name: p}", "name: batch}", 1))
	changed := func(pod *corev1.Pod) bool {
		return slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == "qos" }) &&
			slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "cgroup" })
	}

	eventually(t, "a batch pod gets its init container", func(ctx context.Context) error {
		pod, err := newPod(ctx, c, nil)
		if err == nil && !changed(pod) {
			err = errors.New("it has no init container")
		}

		return err
	})

	optedOut := "labels: {crane.io/opt-out: \"true\"}, "
	ofSet := func(name, labels string) func(*corev1.Pod) {
		set := createUntilEnd(t, fmt.Sprintf(statefulSet, labels, name))
		return func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, set.GroupVersionKind())}
		}
	}

	quiet := createUntilEnd(t, "{apiVersion: v1, kind: Namespace, metadata: {"+optedOut+"generateName: quiet-}}").GetName()
	quietSet := ofSet("quiet", optedOut)
	otherSet := ofSet("other", "")

	eventually(t, "a pod of a workload without the opt-out label gets its init container", func(ctx context.Context) error {
		pod, err := newPod(ctx, c, otherSet)
		if err == nil && !changed(pod) {
			err = errors.New("it has no init container")
		}

		return err
	})

	for name, change := range map[string]func(*corev1.Pod){
		"with the opt-out label":                func(p *corev1.Pod) { p.Labels["crane.io/opt-out"] = "true" },
		"in a namespace with the opt-out label": func(p *corev1.Pod) { p.Namespace = quiet },
		"of a workload with the opt-out label":  quietSet,
		"with another label":                    func(p *corev1.Pod) { p.Labels["workload"] = "web" },
		"of another QoS class": func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": quantity("1")}
		},
		"in kube-system":        func(p *corev1.Pod) { p.Namespace = "kube-system" },
		"in crane-system":       func(p *corev1.Pod) { p.Namespace = namespace },
		"with the ignore label": func(p *corev1.Pod) { p.Labels["webhook.crane.io/ignore"] = "" },
	} {
		if pod, err := newPod(t.Context(), c, change); err != nil || changed(pod) {
			t.Errorf("a pod %s was changed, or error %v, want neither", name, err)
		}
	}

	eventually(t, "the metrics exist", func(ctx context.Context) error {
		page, err := p.Metrics(ctx)
		if err == nil && !strings.Contains(page, `crane_pod_mutations_total{mutator="qos-initializer",result="changed"}`) {
			err = errors.New("no crane_pod_mutations_total")
		}
		if err == nil && !strings.Contains(page, `crane_certificate_expiry_timestamp_seconds{certificate="serving",secret="craned-certificates"}`) {
			err = errors.New("no crane_certificate_expiry_timestamp_seconds")
		}

		return err
	})
}

// TestReadinessChecksOfWebhooks checks that readiness of webhooks and of the switch that stops writes have their own checks, which do not depend on the data
// source.
func TestReadinessChecksOfWebhooks(t *testing.T) {
	p := startCraned(t)
	for _, check := range []string{"webhooks", "pause"} {
		eventually(t, check+" is ready", func(ctx context.Context) error {
			_, err := harness.Get(ctx, p.HealthURL+"/readyz/"+check)
			return err
		})
	}

	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.HealthURL+"/readyz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}

	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}

	resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		t.Error("craned is ready without its data source, want not ready")
	}

	c := newClientset(t)
	service, err := c.CoreV1().Services(namespace).Get(t.Context(), "craned-webhook", metav1.GetOptions{})
	if err != nil || service.Spec.PublishNotReadyAddresses {
		t.Errorf("the Service of webhooks publishes addresses that are not ready: %v", err)
	}
	if _, err := harness.Get(t.Context(), p.HealthURL+"/readyz?exclude=data-source"); err != nil {
		t.Errorf("the readiness of config/ depends on the data source: %v", err)
	}
}

// TestWebhooksDisabled checks that --webhook-enabled=false starts no server and creates no Secret, and that --webhook-cert-dir serves
// the certificates of the directory and creates no Secret.
func TestWebhooksDisabled(t *testing.T) {
	c := newClientset(t)
	ctx := t.Context()
	if err := c.CoreV1().Secrets(namespace).Delete(ctx, secret, metav1.DeleteOptions{}); err != nil && !strings.Contains(err.Error(), "not found") {
		t.Fatal(err)
	}

	off := startCraned(t, "--webhook-enabled=false")
	eventually(t, "craned runs", func(ctx context.Context) error {
		_, err := harness.Get(ctx, off.HealthURL+"/readyz/caches")
		return err
	})

	if _, err := servedCertificate(ctx, off.webhooks); err == nil {
		t.Error("webhooks are served, want them off")
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
		served, err := servedCertificate(ctx, own.webhooks)
		if err == nil && served.Issuer.CommonName != "crane-control-plane" {
			err = fmt.Errorf("issuer %s", served.Issuer)
		}

		return err
	})

	if _, err := c.CoreV1().Secrets(namespace).Get(ctx, secret, metav1.GetOptions{}); err == nil {
		t.Error("a Secret was created, want none")
	}
}
