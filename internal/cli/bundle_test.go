// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/kube/installation"
)

// plantedSecret is part of every secret of the test.
const plantedSecret = "hunter2PLANTED"

// TestBundle plants secrets wherever a bundle looks and checks that none is in a file, while what it is for is.
func TestBundle(t *testing.T) {
	deployment := cranedDeployment()
	deployment.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": plantedSecret}
	deployment.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "PLAIN", Value: plantedSecret}}
	deployment.Spec.Template.Spec.Containers[0].Args = []string{
		"--prometheus-address=http://user:" + plantedSecret + "@prometheus:9090", "--prometheus-bearer-token=" + plantedSecret,
		"--prometheus-headers=X-Scope: " + plantedSecret, "--v=2",
	}

	meta := metav1.ObjectMeta{Namespace: "crane-system", Name: "craned-0", Labels: map[string]string{installation.ComponentLabel: "craned"}}
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "craned", Env: []corev1.EnvVar{{Name: "A", Value: plantedSecret}}}}}}
	file := &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{
		"config.yaml": "address: http://a\npassword: " + plantedSecret + "\napi_key: '" + plantedSecret + "'\n",
		"key.pem":     "-----BEGIN EC PRIVATE KEY-----\n" + plantedSecret + "\n-----END EC PRIVATE KEY-----\n",
		"json":        `{"token": "` + plantedSecret + `", "kept": "value"}`,
	}}

	secret := &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"a": plantedSecret}}
	log := "request failed Authorization: Bearer " + plantedSecret + "\n" + `url="https://u:` + plantedSecret + `@host/api" token=eyJhbGciOi.eyJ` + plantedSecret + ".abc\nkept line\n"

	b := &bundle{
		client: bundleClient(t, deployment, pod, file, secret), namespace: "crane-system", now: time.Unix(1_700_000_000, 0),
		logs: func(context.Context, *corev1.Pod, string) ([]byte, error) { return []byte(log), nil },
	}

	path := filepath.Join(t.TempDir(), "bundle.tar.gz")
	var out bytes.Buffer
	if err := writeBundle(t.Context(), Streams{Out: &out, Err: io.Discard}, b, path); err != nil {
		t.Fatal(err)
	}

	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the bundle has mode %v, error %v, want 0600", info.Mode(), err)
	}

	files := readBundle(t, path)
	for name, content := range files {
		if strings.Contains(content, plantedSecret) {
			t.Errorf("%s has a secret, want it redacted:\n%s", name, content)
		}
	}

	for name, want := range map[string]string{
		"objects/deployment.yaml": "--v=2", "objects/configmap.yaml": "kept", "logs/craned-0/craned.log": "kept line",
		"status.txt": "craned", "version.txt": "crane ", "objects/pod.yaml": "craned-0",
	} {
		if !strings.Contains(files["crane-bundle/"+name], want) {
			t.Errorf("%s has no %q:\n%s", name, want, files["crane-bundle/"+name])
		}
	}

	if err := writeBundle(t.Context(), Streams{Out: &out}, b, path); !errors.Is(err, os.ErrExist) {
		t.Errorf("writeBundle over an existing file = %v, want ErrExist", err)
	}
}

// TestRedact checks the forms in which a secret is written: over several lines, as a word of its own after a flag, with the characters that end a value
// elsewhere, and in keys that do not name a password.
func TestRedact(t *testing.T) {
	for name, content := range map[string]string{
		"literal block":          "password: |\n  SECRET\n  SECRET\nkept: KEPT\n",
		"folded block":           "  token: >-\n\n    SECRET\n  kept: KEPT\n",
		"indented block":         "- secret: |2+ # comment\n      SECRET\n    SECRET\n  kept: KEPT\n",
		"block of a quoted key":  "\"password\": |\n  SECRET\nkept: KEPT\n",
		"value on the next line": "password:\n  SECRET\nkept: KEPT\n",
		"list":                   "tokens:\n- SECRET\n- SECRET\nkept: KEPT\n",
		"argument of its own":    "args:\n- --prometheus-auth-password\n- SECRET\n- --v=KEPT\n",
		"quoted arguments":       "args: [\"--prometheus-auth-bearertoken\", \"SECRET\", \"--v=KEPT\"]\n",
		"command line":           "started with --prometheus-auth-password SECRET --v=KEPT\n",
		"comma":                  "password: a,SECRET\nkept: KEPT\n",
		"comma in JSON":          `{"password":"a,SECRET}b\",SECRET","kept":"KEPT"}`,
		"escaped JSON":           `msg="{\"token\":\"a,SECRET\",\"kept\":\"KEPT\"}"`,
		"at sign in a URL":       "url: http://user:a@SECRET@host/KEPT\n",
		"slash in a URL":         "url: http://user:a/SECRET@host/KEPT\n",
		"kubeconfig":             "client-key-data: SECRET\nkept: KEPT\n",
		"access key":             "aws_access_key_id: SECRET\nAccessKey=SECRET\nkept: KEPT\n",
		"cookie":                 "Cookie: a=b; session=SECRET\nkept: KEPT\n",
		"short password":         "pwd=SECRET\ndb_pass: SECRET\nkept: KEPT\n",
		"webhook of Slack":       "posting to https://hooks.slack.com/services/T0/B0/SECRET\nkept: KEPT\n",
	} {
		got := string(redact([]byte(content)))
		if strings.Contains(got, "SECRET") || !strings.Contains(got, "KEPT") {
			t.Errorf("redact(%s):\n%s\n= \n%s\nwant it without SECRET and with KEPT", name, content, got)
		}
	}
}

// TestBundleWithoutRights checks that what cannot be read is listed.
func TestBundleWithoutRights(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: "craned-0", Labels: map[string]string{installation.ComponentLabel: "craned"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "craned"}}},
	}
	b := &bundle{
		client: bundleClient(t, pod), namespace: "crane-system", now: time.Unix(1_700_000_000, 0),
		logs: func(context.Context, *corev1.Pod, string) ([]byte, error) { return nil, errors.New("forbidden") },
	}
	b.collect(t.Context())

	last := b.files[len(b.files)-1]
	if last.name != "errors.txt" || !strings.Contains(string(last.content), "log of craned-0: forbidden") {
		t.Errorf("the last file is %s with %s, want errors.txt with the forbidden log", last.name, last.content)
	}
}

// readBundle returns the contents of the files of a bundle by name.
func readBundle(t *testing.T, path string) map[string]string {
	t.Helper()

	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()

	compressed, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}

	files := map[string]string{}
	archive := tar.NewReader(compressed)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}

		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}

		files[header.Name] = string(content)
	}
}

func bundleClient(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()

	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, analysisv1alpha1.AddToScheme, autoscalingv1alpha1.AddToScheme, predictionv1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}

	byName := func(o client.Object) []string { return []string{o.GetName()} }
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&coordinationv1.Lease{}, "metadata.name", byName).WithIndex(&corev1.ConfigMap{}, "metadata.name", byName).Build()
}

// cranedDeployment returns the Deployment of craned with one ready pod.
func cranedDeployment() *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: "craned", Labels: map[string]string{installation.ComponentLabel: "craned"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: "registry.example/crane/craned:v1.2.3"}}}},
		},
		Status: appsv1.DeploymentStatus{ReadyReplicas: 1, UpdatedReplicas: 1},
	}
}
