// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricadapter_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/test/integration/harness"
	"crane.io/crane/test/nightly"
)

// TestKEDA runs the operator and the metrics adapter of KEDA beside craned and metric-adapter. Crane's adapter owns external.metrics.k8s.io and
// forwards what it does not have: the HPA of a ScaledObject and that of an EffectiveHPA scale workloads of one namespace.
func TestKEDA(t *testing.T) {
	nightly.Only(t)
	keda := startKEDA(t)
	allowMetricsOfRemote(t)
	adapter := start(t, "--remote-adapter", "--remote-adapter-service-namespace=keda", "--remote-adapter-service-name=keda-metrics-apiserver",
		"--remote-adapter-address="+keda.address, "--remote-adapter-ca-file="+keda.ca, "--discovery-interval=1s")

	craned, err := harness.Binary(t.Context(), t.TempDir(), "craned")
	if err != nil {
		t.Fatal(err)
	}

	harness.StartCraned(t, stopTimeout, control, craned, harness.NoPrometheus, "--controllers=effectivehpa")

	ns := namespaceFor(t)
	c := newClient(t)
	for _, name := range []string{"queue", "consumer", "web"} {
		createDeployment(t, c, ns, name)
	}

	harness.Create(t, c, scaledObject(ns, "consumer"))
	one := int32(1)
	always := []autoscalingv1alpha1.CronSpec{{CronName: "always", Start: "* * * * *", End: "0 0 29 2 *", TargetReplicas: 4}}

	harness.Create(t, c, &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
		Spec: autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			MinReplicas:    &one, MaxReplicas: 6, ScaleStrategy: autoscalingv1alpha1.ScaleStrategyAuto, Crons: always,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
				Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(50))},
			}}},
		},
	})

	awaitReplicas(t, c, ns, "web", 4)
	setReplicas(t, c, ns, "queue", 3) // KEDA's trigger counts its pods.
	awaitReplicas(t, c, ns, "consumer", 3)

	values, err := readExternal(t.Context(), externalPath(ns, "s0-workload-"+ns, "scaledobject.keda.sh/name=consumer"))
	if err != nil || len(values) != 1 || values[0].Value.Value() != 3 {
		t.Errorf("KEDA's metric through Crane: %v, %v, want 3", values, err)
	}
	if owner := ownerOfExternalMetrics(t); owner != systemNamespace+"/metric-adapter" {
		t.Errorf("external.metrics.k8s.io belongs to %s, want Crane's metric-adapter", owner)
	}

	// An EffectiveHPA on KEDA's workload leaves it to KEDA.
	harness.Create(t, c, &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "consumer"},
		Spec: autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "consumer"},
			MinReplicas:    &one, MaxReplicas: 6, ScaleStrategy: autoscalingv1alpha1.ScaleStrategyAuto, Crons: always,
		},
	})

	eventually(t, "the EffectiveHPA reports KEDA's autoscaler", func(ctx context.Context) error {
		e := &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: ns, Name: "consumer"}, e); err != nil {
			return err
		}

		for _, condition := range e.Status.Conditions {
			if condition.Type == "Ready" && condition.Reason == "ForeignAutoscaler" {
				return nil
			}
		}

		return fmt.Errorf("conditions %+v", e.Status.Conditions)
	})

	setReplicas(t, c, ns, "queue", 2)
	awaitReplicas(t, c, ns, "consumer", 2)

	if err := adapter.readyz(t.Context(), ""); err != nil {
		t.Errorf("readiness: %v", err)
	}
}

// kedaServer is a running KEDA: the address of its metrics adapter, and the file with the authority of its certificate.
type kedaServer struct{ address, ca string }

// startKEDA installs KEDA's CRDs and runs its operator and its metrics adapter, built by `make keda`, until the test ends.
func startKEDA(t *testing.T) kedaServer {
	t.Helper()

	binaries := os.Getenv("CRANE_STORES")
	files, err := filepath.Glob(filepath.Join(binaries, "keda-crds", "*.yaml"))
	if err != nil || binaries == "" || len(files) == 0 {
		t.Skipf("no KEDA in $CRANE_STORES; run make keda: %v", err)
	}

	applier, err := manifest.NewApplier(control.Config(), "keda-test")
	if err != nil {
		t.Fatal(err)
	}

	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &crd.Object); err != nil {
			t.Fatal(err)
		}

		if err := applier.Apply(t.Context(), crd); err != nil {
			t.Fatal(err)
		}
	}

	certificates := kedaCertificates(t)
	kubeconfig := control.Kubeconfig()
	for name, value := range map[string]string{
		"KUBECONFIG": kubeconfig, "WATCH_NAMESPACE": "", "POD_NAMESPACE": "keda", "KEDA_CLUSTER_OBJECT_NAMESPACE": "keda",
	} {
		t.Setenv(name, value)
	}

	grpc := harness.FreeAddress(t)
	out := kedaServer{address: harness.FreeAddress(t), ca: filepath.Join(certificates, "ca.crt")}
	harness.Start(t, stopTimeout, filepath.Join(binaries, "keda-operator"), "--cert-dir="+certificates, "--metrics-service-bind-address="+grpc,
		"--metrics-bind-address=0", "--health-probe-bind-address="+harness.FreeAddress(t))
	_, port, _ := net.SplitHostPort(out.address)
	_, metricsPort, _ := net.SplitHostPort(harness.FreeAddress(t))
	harness.Start(t, stopTimeout, filepath.Join(binaries, "keda-adapter"), "--lister-kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig,
		"--authorization-kubeconfig="+kubeconfig, "--bind-address=127.0.0.1", "--secure-port="+port, "--port="+metricsPort, "--cert-dir="+certificates,
		"--tls-cert-file="+filepath.Join(certificates, "tls.crt"), "--tls-private-key-file="+filepath.Join(certificates, "tls.key"),
		"--metrics-service-address="+grpc, "--metrics-service-grpc-authority=localhost")

	return out
}

// kedaCertificates writes the certificate of KEDA's servers, which is that of their client as well, and returns its directory.
func kedaCertificates(t *testing.T) string {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "keda"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, DNSNames: []string{"localhost", "keda-metrics-apiserver.keda.svc"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}

	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}

	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	for name, block := range map[string]*pem.Block{
		"ca.crt": {Type: "CERTIFICATE", Bytes: certificate}, "tls.crt": {Type: "CERTIFICATE", Bytes: certificate}, "tls.key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	return dir
}

// scaledObject returns a ScaledObject of a Deployment that has as many replicas as there are pods of the Deployment queue.
func scaledObject(ns, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": map[string]any{"namespace": ns, "name": name},
		"spec": map[string]any{
			"scaleTargetRef": map[string]any{"name": name}, "minReplicaCount": int64(1), "maxReplicaCount": int64(5), "pollingInterval": int64(1),
			"advanced": map[string]any{"horizontalPodAutoscalerConfig": map[string]any{"behavior": map[string]any{
				"scaleDown": map[string]any{"stabilizationWindowSeconds": int64(0)},
			}}},
			"triggers": []any{map[string]any{"type": "kubernetes-workload", "metadata": map[string]any{"podSelector": "app=queue", "value": "1"}}},
		},
	}}
}

// ownerOfExternalMetrics returns the namespace and the name of the Service of external.metrics.k8s.io.
func ownerOfExternalMetrics(t *testing.T) string {
	t.Helper()

	body, err := raw(t.Context(), "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.external.metrics.k8s.io")
	var service struct {
		Spec struct {
			Service struct{ Namespace, Name string }
		}
	}

	if err == nil {
		err = json.Unmarshal(body, &service)
	}

	if err != nil {
		t.Fatal(err)
	}

	return service.Spec.Service.Namespace + "/" + service.Spec.Service.Name
}

func createDeployment(t *testing.T, c client.Client, ns, name string) {
	t.Helper()

	labels := map[string]string{"app": name}
	harness.Create(t, c, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}},
		}},
	})
}

func setReplicas(t *testing.T, c client.Client, ns, name string, n int32) {
	t.Helper()

	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n))
	if err := c.Patch(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}, patch); err != nil {
		t.Fatal(err)
	}
}

func awaitReplicas(t *testing.T, c client.Client, ns, name string, want int32) {
	t.Helper()

	eventually(t, fmt.Sprintf("%s has %d replicas", name, want), func(ctx context.Context) error {
		d := &appsv1.Deployment{}
		err := c.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, d)
		if err == nil && *d.Spec.Replicas != want {
			err = fmt.Errorf("%d", *d.Spec.Replicas)
		}

		return err
	})
}

// allowMetricsOfRemote lets metric-adapter read the metrics of a remote adapter until the test ends.
func allowMetricsOfRemote(t *testing.T) {
	t.Helper()

	rbac := clientset().RbacV1()
	meta := metav1.ObjectMeta{Name: "metric-adapter-reads-other"}
	if _, err := rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"external.metrics.k8s.io", "custom.metrics.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"get", "list"},
	}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	if _, err := rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: systemNamespace, Name: "metric-adapter"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(rbac.ClusterRoleBindings().Delete(ctx, meta.Name, metav1.DeleteOptions{}), rbac.ClusterRoles().Delete(ctx, meta.Name, metav1.DeleteOptions{})); err != nil {
			t.Error(err)
		}
	})
}
