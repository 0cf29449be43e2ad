// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package realcluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/playground/clusterseries"
	"crane.io/crane/internal/testbed/playground/load"
	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/internal/testbed/realnode"
	"crane.io/crane/internal/testbed/realnode/bridge"
)

const (
	// Monitoring is the namespace of Prometheus.
	Monitoring = "monitoring"
	// PrometheusService is the name of the Service of Prometheus.
	PrometheusService = "prometheus"
	prometheusPort    = 9090
	// sampleInterval is the interval of scrapes and of kube-state-metrics' series. The kubelet updates cAdvisor's values every 10 to 15 s.
	sampleInterval = 5 * time.Second
)

// StartPrometheus starts a Prometheus beside the control plane, which the Service monitoring/prometheus leads to. It scrapes cAdvisor of
// the nodes' kubelets; the series of kube-state-metrics are computed from the objects of the cluster. It runs until ctx ends.
func StartPrometheus(ctx context.Context, c *realnode.Cluster, dir string, nodes []*realnode.Node, log io.Writer) (*promserver.Server, error) {
	scrapes, err := scrapeConfigs(ctx, c, dir, nodes)
	if err != nil {
		return nil, err
	}

	server, err := promserver.Open(promserver.Options{
		Dir:            filepath.Join(dir, "data"),
		Listen:         net.JoinHostPort(bridge.Gateway().String(), strconv.Itoa(prometheusPort)),
		ScrapeInterval: sampleInterval,
		ScrapeConfigs:  scrapes,
	})
	if err != nil {
		return nil, err
	}

	if err := publishPrometheus(ctx, c.Client()); err != nil {
		return nil, err
	}

	reader, err := client.New(c.Control().Config(), client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		return nil, fmt.Errorf("creating the client of Prometheus: %w", err)
	}

	// kube-state-metrics does not run: its series are appended by this process.
	go func() {
		for ctx.Err() == nil {
			if err := appendState(ctx, server, reader); err != nil && ctx.Err() == nil {
				_, _ = fmt.Fprintln(log, "cluster: kube-state-metrics:", err)
			}

			select {
			case <-ctx.Done():
			case <-time.After(sampleInterval):
			}
		}
	}()

	return server, nil
}

func publishPrometheus(ctx context.Context, client kubernetes.Interface) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Monitoring}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating namespace %s: %w", Monitoring, err)
	}

	// Discovery accepts a Prometheus in a namespace whose ServiceAccount scrapes the kubelets, as an installed one does.
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: PrometheusService},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes/metrics"}, Verbs: []string{"get"}}},
	}
	if _, err := client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating ClusterRole %s: %w", role.Name, err)
	}

	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: PrometheusService},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: Monitoring, Name: PrometheusService}},
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating ClusterRoleBinding %s: %w", binding.Name, err)
	}

	labels := map[string]string{"app.kubernetes.io/name": PrometheusService}
	return realnode.PublishService(ctx, client, Monitoring, PrometheusService, labels, "",
		corev1.ServicePort{Name: "http", Protocol: corev1.ProtocolTCP, Port: prometheusPort})
}

// scrapeConfigs returns the jobs for the kubelets of nodes, with the labels that the Prometheus operator's charts use.
func scrapeConfigs(ctx context.Context, c *realnode.Cluster, dir string, nodes []*realnode.Node) (string, error) {
	config, err := c.Control().ConfigFor(ctx, controlplane.CertificateUser("prometheus", "system:masters"))
	if err != nil {
		return "", err
	}

	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("creating the directory of Prometheus: %w", err)
	}

	for name, content := range map[string][]byte{"ca.crt": c.Control().CAPEM(), "tls.crt": config.CertData, "tls.key": config.KeyData} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return "", fmt.Errorf("writing the certificate of Prometheus: %w", err)
		}
	}

	// Each kubelet is a target with the name of its node as a label.
	var b strings.Builder
	fmt.Fprintf(&b, `scrape_configs:
- job_name: %s
  scheme: https
  metrics_path: /metrics/cadvisor
  tls_config: {ca_file: %[2]s/ca.crt, cert_file: %[2]s/tls.crt, key_file: %[2]s/tls.key}
  static_configs:
`, clusterseries.JobKubelet, dir)

	for _, n := range nodes {
		fmt.Fprintf(&b, "  - {targets: ['%s'], labels: {node: %s, metrics_path: /metrics/cadvisor}}\n", net.JoinHostPort(n.Address(), "10250"), n.Name())
	}

	return b.String(), nil
}

// appendState appends kube-state-metrics' series of the current objects.
func appendState(ctx context.Context, server *promserver.Server, reader client.Reader) error {
	objects, err := clusterseries.ReadObjects(ctx, reader)
	if err != nil {
		return err
	}

	now := time.Now()
	exporter := clusterseries.New(load.NewSource(nil, 1))
	return server.Append(ctx, clusterseries.JobState, now, exporter.Samples(clusterseries.Snapshot{At: now, Objects: objects}))
}
