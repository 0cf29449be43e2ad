// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"crane.io/crane/config"
	"crane.io/crane/internal/kube/manifest"
)

// presets returns the files of values beside values.yaml.
func presets(t *testing.T) []string {
	t.Helper()

	files, err := filepath.Glob(chart + "/values-*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("presets %v: %v, want 3 or more", files, err)
	}

	return files
}

func TestLint(t *testing.T) {
	for _, file := range append(presets(t), chart+"/values.yaml") {
		out := runHelm(t, "lint", "--strict", chart, "--values", file, "--set", registry, "--set", server)
		if !strings.Contains(out, "0 chart(s) failed") {
			t.Errorf("helm lint of %s: %s, want 0 failed charts", file, out)
		}
	}
}

// TestSameObjectsAsConfig compares what the chart renders by default with config/, which kustomize and the tests install.
func TestSameObjectsAsConfig(t *testing.T) {
	want, err := manifest.ReadDir(config.Manifests, ".")
	if err != nil {
		t.Fatal(err)
	}

	dashboard, err := manifest.ReadDir(config.Components, "components/dashboard")
	if err != nil || len(dashboard) < 5 {
		t.Fatalf("%d objects of the dashboard, %v, want 5 or more", len(dashboard), err)
	}

	want = append(want, dashboard...)
	rendered := map[string]*unstructured.Unstructured{}
	for _, o := range render(t, "--skip-tests", "--set", "namespace.create=true", "--set", "recommendationRules.create=false", "--set", "dashboard.enabled=true") {
		rendered[nameOf(o)] = o
	}

	for _, o := range want {
		have := rendered[nameOf(o)]
		delete(rendered, nameOf(o))

		if have == nil {
			t.Errorf("the chart has no %s, want it as in config/", nameOf(o))
			continue
		}

		if diff := cmp.Diff(withoutRelease(t, o), withoutRelease(t, have)); diff != "" {
			t.Errorf("%s (-config +chart), want none:\n%s", nameOf(o), diff)
		}
	}

	if len(rendered) > 0 {
		t.Errorf("the chart has %v, want only what config/ has", slices.Sorted(maps.Keys(rendered)))
	}
}

// withoutRelease returns a copy without what a release adds: labels, images and the checksum of the scheduler's configuration.
func withoutRelease(t *testing.T, o *unstructured.Unstructured) map[string]any {
	t.Helper()

	// Numbers have one type afterward.
	raw, err := o.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}

	var out map[string]any
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}

	metadata, _ := out["metadata"].(map[string]any)
	if labels, ok := metadata["labels"].(map[string]any); ok {
		for _, name := range []string{"app.kubernetes.io/part-of", "app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart"} {
			delete(labels, name)
		}

		for name := range labels {
			if strings.HasPrefix(name, "pod-security.kubernetes.io/") {
				delete(labels, name)
			}
		}

		if len(labels) == 0 {
			delete(metadata, "labels")
		}
	}

	if annotations, ok := metadata["annotations"].(map[string]any); ok {
		delete(annotations, "helm.sh/resource-policy")
		if len(annotations) == 0 {
			delete(metadata, "annotations")
		}
	}

	withoutPodRelease(out)
	return out
}

func withoutPodRelease(o map[string]any) {
	template, found, _ := unstructured.NestedMap(o, "spec", "template")
	if !found {
		return
	}

	if metadata, ok := template["metadata"].(map[string]any); ok {
		delete(metadata, "annotations")
	}

	spec, _ := template["spec"].(map[string]any)
	containers, _ := spec["containers"].([]any)
	for _, c := range containers {
		container, _ := c.(map[string]any)
		delete(container, "image")
		delete(container, "imagePullPolicy")

		// Arguments that the chart sets follow the others.
		args, _ := container["args"].([]any)
		slices.SortFunc(args, func(x, y any) int { return strings.Compare(x.(string), y.(string)) })
	}

	o["spec"].(map[string]any)["template"] = template
}

// TestSchemaListsTheValues checks that values.schema.json has the names of values.yaml and no others.
func TestSchemaListsTheValues(t *testing.T) {
	var schema map[string]any
	var values map[string]any
	for path, into := range map[string]*map[string]any{chart + "/values.schema.json": &schema, chart + "/values.yaml": &values} {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		if err := yaml.UnmarshalStrict(content, into); err != nil {
			t.Fatalf("parsing %s: %v", path, err)
		}
	}

	defs, _ := schema["$defs"].(map[string]any)
	properties, _ := schema["properties"].(map[string]any)
	delete(properties, "global") // Helm adds it.
	compareNames(t, "", schema, defs, values)
}

func compareNames(t *testing.T, path string, schema, defs, values map[string]any) {
	t.Helper()

	if schema["additionalProperties"] != false {
		t.Errorf("%s: unknown names are accepted, want a refusal", path)
	}

	properties, _ := schema["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if _, ok := values[name]; !ok {
			t.Errorf("values.yaml has no %s, want every name of the schema", path+name)
		}
	}

	for name, value := range values {
		property, _ := properties[name].(map[string]any)
		if ref, ok := property["$ref"].(string); ok {
			property, _ = defs[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
		}

		nested, isObject := value.(map[string]any)
		switch {
		case property == nil:
			t.Errorf("the schema has no %s, want every name of values.yaml", path+name)
		case isObject && property["properties"] != nil && name != "resources":
			compareNames(t, path+name+".", property, defs, nested)
		}
	}
}

func TestSchemaRefuses(t *testing.T) {
	for value, message := range map[string]string{
		"imag.tag=1":                      "additional properties 'imag' not allowed",
		"craned.replica=3":                "additional properties 'replica' not allowed",
		"craned.image.tag=v1":             "additional properties 'tag' not allowed",
		"craned.mode=recommend":           "/craned/mode",
		"craned.replicas=two":             "/craned/replicas",
		"craned.extraArgs[0]=v":           "/craned/extraArgs/0",
		"craned.image.digest=sha256:1":    "/craned/image/digest",
		"craned.resources.request.cpu=1":  "additional properties 'request' not allowed",
		"prometheus.url=prometheus:9090":  "/prometheus/url",
		"namespace.podSecurity=strict":    "/namespace/podSecurity",
		"monitoring.monitors=yes":         "/monitoring/monitors",
		"networkPolicy.prometheusPorts=1": "/networkPolicy/prometheusPorts",
	} {
		_, err := tryHelm(t, "template", release, chart, "--set", registry, "--set", value)
		if err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("%s: %v, want %q", value, err, message)
		}
	}
}

// TestRequiredValues checks the messages for values that have no default.
func TestRequiredValues(t *testing.T) {
	for set, message := range map[string]string{
		registry: "prometheus.url: set the URL of Prometheus",
		server:   "image.registry: set the registry",
	} {
		_, err := tryHelm(t, "template", release, chart, "--set", set)
		if err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("with %s: %v, want %q", set, err, message)
		}
	}
}

// TestAdvisoryWritesNothingOfOthers checks the rights of the preset for recommendations alone.
func TestAdvisoryWritesNothingOfOthers(t *testing.T) {
	objects := render(t, "--values", chart+"/values-advisory.yaml")
	writes := 0
	for _, o := range objects {
		if o.GetKind() != "ClusterRole" || !strings.HasPrefix(o.GetName(), "craned") {
			continue
		}

		for _, rule := range convert[rbacv1.ClusterRole](t, o).Rules {
			if !slices.ContainsFunc(rule.Verbs, func(verb string) bool { return !slices.Contains([]string{"get", "list", "watch"}, verb) }) {
				continue
			}

			writes++
			for _, group := range rule.APIGroups {
				// Events, reviews of callers and the authority of webhooks, which is limited by name.
				allowed := strings.HasSuffix(group, ".crane.io") || group == "events.k8s.io" || strings.HasSuffix(group, "authentication.k8s.io") ||
					strings.HasSuffix(group, "authorization.k8s.io") || group == "admissionregistration.k8s.io" && len(rule.ResourceNames) > 0
				if !allowed {
					t.Errorf("%s may %v %v of group %q, want no right to write objects of others", o.GetName(), rule.Verbs, rule.Resources, group)
				}
			}
		}
	}

	if writes == 0 {
		t.Error("no right to write was found, want those to Recommendations")
	}

	for _, o := range objects {
		if o.GetKind() == "MutatingWebhookConfiguration" && o.GetName() == "crane-pods" {
			t.Error("new pods are sent to craned, want no such webhook")
		}
		if o.GetKind() == "Deployment" && !slices.Contains(container(t, o).Args, "--controllers=cost,oom,recommendation") {
			t.Errorf("%s runs with %v, want the three advisory controllers", o.GetName(), container(t, o).Args)
		}
	}
}

// TestReleaseNamespace checks that nothing refers to the namespace of config/ in another one.
func TestReleaseNamespace(t *testing.T) {
	out := runHelm(t, "template", release, chart, "--namespace", "finops", "--values", chart+"/values-full.yaml", "--set", registry, "--set", server)
	for line := range strings.SplitSeq(out, "\n") {
		// Descriptions of fields name the default.
		if strings.Contains(line, "crane-system") && !strings.Contains(line, "description") && strings.Contains(line, ": ") {
			t.Errorf("line %q names the default namespace, want finops", line)
		}
	}
}

func TestPrometheusSettings(t *testing.T) {
	values := filepath.Join(t.TempDir(), "values.yaml")
	const text = `
prometheus:
  extensionLabels: {cluster: eu, tenant: a}
  tls: {insecureSkipVerify: true, ca: {configMap: ca}, clientSecret: client}
  bearerToken: {secret: token}
  basicAuth: {secret: basic}
  headers: {X-Scope-OrgID: team-a}
  headersSecret: {secret: headers}
`

	if err := os.WriteFile(values, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	found := 0
	for _, o := range render(t, "--values", values) {
		if o.GetKind() != "Deployment" || o.GetName() == "crane-scheduler" {
			continue
		}

		found++
		c := container(t, o)
		for _, arg := range []string{
			"--prometheus-address=http://prometheus.monitoring:9090", "--prometheus-insecure-skip-verify=true",
			"--prometheus-ca-file=/etc/prometheus/ca/ca.crt", "--prometheus-cert-file=/etc/prometheus/client/tls.crt",
			"--prometheus-key-file=/etc/prometheus/client/tls.key", "--prometheus-auth-bearertoken-file=/etc/prometheus/token/token",
			"--prometheus-header=X-Scope-OrgID: team-a",
			"--prometheus-headers-file=/etc/prometheus/headers/headers", "--prometheus-adapter-extension-labels=cluster=eu,tenant=a",
		} {
			if !slices.Contains(c.Args, arg) {
				t.Errorf("%s has the arguments %v, want %s", o.GetName(), c.Args, arg)
			}
		}

		if slices.ContainsFunc(c.Args, func(arg string) bool { return strings.Contains(arg, "PASSWORD") }) {
			t.Errorf("%s: a password is in the arguments %v, want it in the environment", o.GetName(), c.Args)
		}

		mounts := map[string]string{}
		for _, m := range c.VolumeMounts {
			mounts[m.Name] = m.MountPath
		}

		for _, name := range []string{"ca", "client", "token", "headers"} {
			if mounts["prometheus-"+name] != "/etc/prometheus/"+name {
				t.Errorf("%s: %s is mounted at %q, want /etc/prometheus/%s", o.GetName(), name, mounts["prometheus-"+name], name)
			}
		}

		if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
			return e.Name == "CRANE_PROMETHEUS_PASSWORD" && e.ValueFrom.SecretKeyRef.Name == "basic" && e.ValueFrom.SecretKeyRef.Key == "password"
		}) {
			t.Errorf("%s: environment %v, want the password of Secret basic", o.GetName(), c.Env)
		}
	}

	if found != 2 {
		t.Errorf("%d Deployments, want 2", found)
	}
}

// TestDashboardArguments checks that the dashboard gets the access to Prometheus and the certificate by the names of its own flags.
func TestDashboardArguments(t *testing.T) {
	for _, o := range render(t, "--set", "dashboard.enabled=true,certManager.enabled=true,prometheus.bearerToken.secret=token,prometheus.basicAuth.secret=basic,prometheus.extensionLabels.cluster=eu") {
		if o.GetKind() != "Deployment" || o.GetName() != "crane-dashboard" {
			continue
		}

		c := container(t, o)
		want := []string{
			"dashboard", "serve", "--listen=:8443", "--craned-namespace=crane-system", "--prometheus=http://prometheus.monitoring:9090", "--prometheus-labels=cluster=eu",
			"--prometheus-token-file=/etc/prometheus/token/token", "--tls-cert-dir=/etc/crane-serving",
		}

		if diff := cmp.Diff(want, c.Args); diff != "" {
			t.Errorf("arguments (-want +have):\n%s", diff)
		}
		if pod := convert[appsv1.Deployment](t, o).Spec.Template.Spec; len(pod.Volumes) != 2 || len(c.VolumeMounts) != 2 {
			t.Errorf("volumes %+v, mounts %+v, want two of each", pod.Volumes, c.VolumeMounts)
		}

		return
	}

	t.Error("no Deployment of the dashboard, want one")
}

// TestStateVolume checks that a given volume takes the place of the emptyDir with the checkpoints, and that no name of a volume occurs twice.
func TestStateVolume(t *testing.T) {
	found := false
	for _, o := range render(t, "--set", "craned.stateVolume.persistentVolumeClaim.claimName=forecasts") {
		if o.GetKind() != "Deployment" || o.GetName() != "craned" {
			continue
		}

		found = true
		names := map[string]int{}
		for _, v := range convert[appsv1.Deployment](t, o).Spec.Template.Spec.Volumes {
			names[v.Name]++
			if v.Name == "state" && (v.PersistentVolumeClaim == nil || v.PersistentVolumeClaim.ClaimName != "forecasts" || v.EmptyDir != nil) {
				t.Errorf("volume %+v, want the claim forecasts", v)
			}
		}

		if names["state"] != 1 || names["node-load-policy"] != 1 {
			t.Errorf("volumes %v, want each once", names)
		}
	}

	if !found {
		t.Error("no Deployment craned, want one")
	}
}

// TestNotifications checks that the Secret is mounted where the flags expect the URLs, and that nothing of it is there by default.
func TestNotifications(t *testing.T) {
	find := func(extra ...string) corev1.PodSpec {
		for _, o := range render(t, extra...) {
			if o.GetKind() == "Deployment" && o.GetName() == "craned" {
				return convert[appsv1.Deployment](t, o).Spec.Template.Spec
			}
		}

		t.Fatal("no craned, want one")
		return corev1.PodSpec{}
	}

	if spec := find(); strings.Contains(strings.Join(spec.Containers[0].Args, " "), "notification") {
		t.Errorf("default arguments %v, want no notifications", spec.Containers[0].Args)
	}

	spec := find("--set", "craned.notifications.secret=chat,craned.notifications.slackKey=s,craned.notifications.webhookKey=w,craned.notifications.weeklyReport=Friday 09:00 Asia/Shanghai")
	for _, want := range []string{
		"--notification-slack-url-file=/etc/crane-notifications/s", "--notification-webhook-url-file=/etc/crane-notifications/w", "--weekly-report=Friday 09:00 Asia/Shanghai",
	} {
		if !slices.Contains(spec.Containers[0].Args, want) {
			t.Errorf("arguments %v, want %s", spec.Containers[0].Args, want)
		}
	}

	mounted := slices.ContainsFunc(spec.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.Name == "notifications" && m.MountPath == "/etc/crane-notifications"
	})
	if !mounted || !slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == "notifications" && v.Secret.SecretName == "chat" }) {
		t.Errorf("volumes %v, mounts %v, want the Secret chat", spec.Volumes, spec.Containers[0].VolumeMounts)
	}
}

// TestPodValues checks the values that each component has.
func TestPodValues(t *testing.T) {
	values := filepath.Join(t.TempDir(), "values.yaml")
	const component = `
  image: {digest: "sha256:` + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" + `"}
  extraArgs: [--v=2]
  extraEnv: [{name: EXTRA, value: "1"}]
  extraVolumes: [{name: extra, emptyDir: {}}]
  extraVolumeMounts: [{name: extra, mountPath: /extra}]
  extraContainers: [{name: proxy, image: proxy}]
  resources: {requests: {cpu: 7m}}
  podLabels: {team: finops}
  podAnnotations: {note: yes it is}
  serviceAccountAnnotations: {role: arn}
  nodeSelector: {pool: system}
  tolerations: [{key: system, operator: Exists}]
  affinity: {nodeAffinity: {}}
  priorityClassName: high
`

	var text strings.Builder
	text.WriteString("image: {tag: v9, pullSecrets: [regcred]}\ncommonLabels: {owner: me}\ncommonAnnotations: {contact: me}\n")

	for _, name := range []string{"craned", "metricAdapter", "craneScheduler", "craneAgent", "dashboard"} {
		text.WriteString(name + ":" + component)
	}

	text.WriteString("  enabled: true\n") // of the dashboard
	if err := os.WriteFile(values, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}

	workloads, accounts := 0, 0
	for _, o := range render(t, "--values", values, "--set", "monitoring.monitors=true,monitoring.rules=true,certManager.enabled=true,networkPolicy.enabled=true") {
		if o.GetKind() != "CustomResourceDefinition" && (o.GetLabels()["owner"] != "me" || o.GetAnnotations()["contact"] != "me") {
			t.Errorf("%s: labels %v, annotations %v, want owner and contact me", nameOf(o), o.GetLabels(), o.GetAnnotations())
		}
		if o.GetKind() == "ServiceAccount" && o.GetAnnotations()["role"] == "arn" {
			accounts++
		}

		if o.GetKind() != "Deployment" && o.GetKind() != "DaemonSet" {
			continue
		}

		workloads++
		template := convert[appsv1.Deployment](t, o).Spec.Template
		pod := template.Spec

		c := container(t, o)
		if c.Image != "registry.example/crane/"+strings.TrimSuffix(o.GetName(), "-dashboard")+"@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" {
			t.Errorf("image %s, want the registry and digest of the values", c.Image)
		}

		ok := c.Args[len(c.Args)-1] == "--v=2" && c.Env[len(c.Env)-1].Name == "EXTRA" && c.VolumeMounts[len(c.VolumeMounts)-1].Name == "extra" &&
			pod.Volumes[len(pod.Volumes)-1].Name == "extra" && len(pod.Containers) == 2 && c.Resources.Requests.Cpu().String() == "7m" &&
			!c.Resources.Limits.Memory().IsZero() && template.Labels["team"] == "finops" && template.Labels["app.kubernetes.io/name"] == o.GetName() &&
			template.Annotations["note"] == "yes it is" && pod.NodeSelector["pool"] == "system" && len(pod.Tolerations) == 1 &&
			pod.Affinity != nil && pod.PriorityClassName == "high" && pod.ImagePullSecrets[0].Name == "regcred"
		if !ok {
			t.Errorf("the pod template of %s is %+v, want every value used", o.GetName(), template)
		}
	}

	if workloads != 5 || accounts != 5 {
		t.Errorf("%d workloads, %d accounts, want 5 of each", workloads, accounts)
	}
}

// TestOptionalObjects checks objects that depend on values or on the kinds of the cluster.
func TestOptionalObjects(t *testing.T) {
	tests := map[string]struct {
		args, want []string
	}{
		"Kubernetes before 1.36": {[]string{"--kube-version", "1.35"}, []string{
			"-MutatingAdmissionPolicy.admissionregistration.k8s.io /crane-topology-result-of-new-pods",
			"-MutatingAdmissionPolicyBinding.admissionregistration.k8s.io /crane-topology-result-of-new-pods",
		}},
		"alerts": {[]string{"--api-versions", "monitoring.coreos.com/v1/PrometheusRule"}, []string{"PrometheusRule.monitoring.coreos.com crane-system/crane"}},
		"operator of Prometheus": {[]string{"--api-versions", "monitoring.coreos.com/v1/ServiceMonitor"}, []string{
			"Service crane-system/crane-agent", "ServiceMonitor.monitoring.coreos.com crane-system/crane-agent",
			"Service crane-system/crane-scheduler", "ServiceMonitor.monitoring.coreos.com crane-system/crane-scheduler",
			"ServiceMonitor.monitoring.coreos.com crane-system/craned", "ServiceMonitor.monitoring.coreos.com crane-system/metric-adapter",
			"ServiceAccount crane-system/crane-metrics-client", "Secret crane-system/crane-metrics-client",
			"ClusterRole.rbac.authorization.k8s.io /crane-metrics-client", "ClusterRoleBinding.rbac.authorization.k8s.io /crane-metrics-client",
		}},
		"cert-manager": {[]string{"--set", "certManager.enabled=true"}, []string{
			"Issuer.cert-manager.io crane-system/crane", "Certificate.cert-manager.io crane-system/craned-webhook",
			"Certificate.cert-manager.io crane-system/metric-adapter", "Certificate.cert-manager.io crane-system/crane-scheduler",
		}},
		"dashboard": {[]string{"--set", "dashboard.enabled=true"}, []string{
			"Deployment.apps crane-system/crane-dashboard", "Service crane-system/crane-dashboard", "ServiceAccount crane-system/crane-dashboard",
			"ClusterRole.rbac.authorization.k8s.io /crane-dashboard", "ClusterRoleBinding.rbac.authorization.k8s.io /crane-dashboard",
		}},
		"in place of kube-scheduler": {[]string{"--set", "craneScheduler.replaceKubeScheduler=true"}, []string{
			"ClusterRoleBinding.rbac.authorization.k8s.io /crane-scheduler:replace-kube-scheduler",
			"ValidatingAdmissionPolicy.admissionregistration.k8s.io /crane-kube-scheduler-pods",
			"ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io /crane-kube-scheduler-pods",
		}},
		"OpenShift": {[]string{"--set", "openshift.enabled=true"}, []string{"SecurityContextConstraints.security.openshift.io /crane-agent"}},
		"network policies": {[]string{"--set", "networkPolicy.enabled=true"}, []string{
			"NetworkPolicy.networking.k8s.io crane-system/craned", "NetworkPolicy.networking.k8s.io crane-system/metric-adapter",
			"NetworkPolicy.networking.k8s.io crane-system/crane-scheduler", "NetworkPolicy.networking.k8s.io crane-system/crane-agent",
		}},
	}

	plain := map[string]bool{}
	for _, o := range render(t) {
		plain[nameOf(o)] = true
	}

	for name, test := range tests {
		var changed []string
		missing := maps.Clone(plain)
		for _, o := range render(t, test.args...) {
			if !plain[nameOf(o)] {
				changed = append(changed, nameOf(o))
			}
			delete(missing, nameOf(o))
		}

		for name := range missing {
			changed = append(changed, "-"+name)
		}

		slices.Sort(changed)
		slices.Sort(test.want)

		if diff := cmp.Diff(test.want, changed); diff != "" {
			t.Errorf("%s (-want +have):\n%s", name, diff)
		}
	}
}

// TestCertManager checks that webhooks and metric-adapter serve the certificates of cert-manager instead of their own, and that the API server gets
// their authority from the same Certificate.
func TestCertManager(t *testing.T) {
	certificates := map[string]map[string]any{}
	injected := map[string]string{}
	pods := map[string]corev1.PodSpec{}
	for _, o := range render(t, "--set", "certManager.enabled=true,certManager.issuer.name=corporate,certManager.issuer.kind=ClusterIssuer") {
		switch o.GetKind() {
		case "Certificate":
			certificates[o.GetNamespace()+"/"+o.GetName()], _ = o.Object["spec"].(map[string]any)
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "APIService":
			injected[o.GetKind()+" "+o.GetName()] = o.GetAnnotations()["cert-manager.io/inject-ca-from"]
		case "Deployment":
			pods[o.GetName()] = convert[appsv1.Deployment](t, o).Spec.Template.Spec
		case "Issuer":
			t.Error("the chart has an Issuer, want the one of the values alone")
		}
	}

	for name, from := range injected {
		want := "crane-system/craned-webhook"
		if strings.HasPrefix(name, "APIService") {
			want = "crane-system/metric-adapter"
		}
		if from != want {
			t.Errorf("%s has the authority of %q, want %s", name, from, want)
		}
	}

	if len(injected) != 6 || len(certificates) != 3 {
		t.Errorf("%d objects with an authority, %d Certificates, want 6 and 3", len(injected), len(certificates))
	}

	for deployment, test := range map[string]struct {
		service, secret, arg string
		names                []any
	}{
		// Prometheus verifies craned by the name of the Service of its metrics.
		"craned":          {"craned-webhook", "craned-webhook-tls", "--webhook-cert-dir=", []any{"craned-webhook.crane-system.svc", "craned.crane-system.svc"}},
		"metric-adapter":  {"metric-adapter", "metric-adapter-tls", "--tls-cert-file=", []any{"metric-adapter.crane-system.svc"}},
		"crane-scheduler": {"crane-scheduler", "crane-scheduler-tls", "--tls-cert-file=", []any{"crane-scheduler.crane-system.svc"}},
	} {
		want := map[string]any{
			"secretName": test.secret, "dnsNames": test.names,
			"issuerRef": map[string]any{"kind": "ClusterIssuer", "name": "corporate"},
		}

		if diff := cmp.Diff(want, certificates["crane-system/"+test.service]); diff != "" {
			t.Errorf("Certificate %s (-want +have):\n%s", test.service, diff)
		}

		pod := pods[deployment]
		volume := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Secret != nil && v.Secret.SecretName == test.secret })
		if volume < 0 {
			t.Fatalf("%s has no volume of %s, want one", deployment, test.secret)
		}

		c := pod.Containers[0]
		if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.Name == pod.Volumes[volume].Name && slices.ContainsFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, test.arg+m.MountPath) })
		}) {
			t.Errorf("%s has the arguments %v, want %s with a mount of %s", deployment, c.Args, test.arg, test.secret)
		}
	}
}

// TestOpenShift checks that OpenShift chooses the user IDs of Deployments, and that the SecurityContextConstraints allow what the DaemonSet needs.
func TestOpenShift(t *testing.T) {
	workloads := 0
	allowed := constraintVolumes(t)
	for _, o := range render(t, "--set", "openshift.enabled=true,dashboard.enabled=true") {
		switch o.GetKind() {
		case "Deployment":
			workloads++
			if user := convert[appsv1.Deployment](t, o).Spec.Template.Spec.SecurityContext.RunAsUser; user != nil {
				t.Errorf("%s has user %d, want none", o.GetName(), *user)
			}

		case "DaemonSet":
			workloads++
			volumes, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "volumes")
			if len(volumes) == 0 {
				t.Error("the DaemonSet has no volume, want the host's")
			}

			for _, v := range volumes {
				for kind := range v.(map[string]any) {
					if kind != "name" && !slices.Contains(allowed, kind) {
						t.Errorf("the DaemonSet has volumes of type %s, want %v", kind, allowed)
					}
				}
			}
		}
	}

	if workloads != 5 {
		t.Errorf("%d workloads, want 5", workloads)
	}
}

// constraintVolumes returns the types of volumes that the SecurityContextConstraints allow.
func constraintVolumes(t *testing.T) []string {
	t.Helper()

	for _, o := range render(t, "--set", "openshift.enabled=true") {
		if o.GetKind() == "SecurityContextConstraints" {
			if users, _, _ := unstructured.NestedStringSlice(o.Object, "users"); !slices.Contains(users, "system:serviceaccount:crane-system:crane-agent") {
				t.Errorf("users %v, want the agent's account", users)
			}

			volumes, _, _ := unstructured.NestedStringSlice(o.Object, "volumes")
			return volumes
		}
	}

	t.Fatal("no SecurityContextConstraints, want one")
	return nil
}

func TestPodSecurityOfNamespace(t *testing.T) {
	for file, want := range map[string]string{"values-advisory.yaml": "restricted", "values-full.yaml": "privileged"} {
		for _, o := range render(t, "--values", chart+"/"+file, "--set", "namespace.create=true") {
			if o.GetKind() == "Namespace" && o.GetLabels()["pod-security.kubernetes.io/enforce"] != want {
				t.Errorf("%s: %v, want %s", file, o.GetLabels(), want)
			}
		}
	}
}

func convert[T any](t *testing.T, o *unstructured.Unstructured) T {
	t.Helper()

	var out T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &out); err != nil {
		t.Fatalf("converting %s: %v", nameOf(o), err)
	}

	return out
}

// container returns the first container of a workload.
func container(t *testing.T, o *unstructured.Unstructured) corev1.Container {
	t.Helper()
	return convert[appsv1.Deployment](t, o).Spec.Template.Spec.Containers[0]
}
