// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/component/termtext"
)

// hostileText controls a terminal, reverses the direction of text, and begins a line that looks like one of the program.
const hostileText = "x\x1b]0;owned\x07\x1b[2J\u009b31m\x7f\u202e\u2066\u2028\nFORGED\rFORGED"

// TestHostileText runs every command against a cluster, a Prometheus and files whose texts are hostile.
func TestHostileText(t *testing.T) {
	kubeconfig := hostileCluster(t)
	prometheus := hostilePrometheus(t)
	files := t.TempDir()
	writeHostileSeries(t, filepath.Join(files, hostileText+".csv"), true)
	writeHostileSeries(t, filepath.Join(files, hostileText+".txt"), true)
	broken := t.TempDir()
	writeHostileSeries(t, filepath.Join(broken, hostileText+".csv"), false)

	cluster := []string{"--kubeconfig", kubeconfig}
	both := append([]string{"--prometheus", prometheus}, cluster...)
	for path, runs := range map[string][][]string{
		"adopt":                      {append(cluster, "-n", "shop", "--dry-run"), append(cluster, "-n", "shop", "--dry-run", "-o", "yaml"), append(cluster, "-n", "shop", "web", "--yes"), append(cluster, "-A", "--dry-run", "-o", "json")},
		"backtest forecast":          {{files}, {files, "-o", "json"}, {broken}},
		"backtest rightsize":         {{"--from", files}, {"--from", files, "-o", "json"}, {"--from", broken}},
		"cleanup node":               {append(cluster, "--timeout", "1s")},
		"cost":                       {both, append(both, "--by", "workload"), append(both, "-o", "json")},
		"doctor":                     {both, append(both, "-o", "json")},
		"explain scheduling":         {append(cluster, "shop/deployment/web")},
		"explain workload":           {append(cluster, "shop/deployment/web"), append(cluster, "shop/none"), append(cluster, "shop/deployment/web", "-o", "json")},
		"forecast":                   {{files}, {files, "-o", "json"}, {files, "-o", "chart"}, {broken}},
		"migrate export":             {append(cluster, filepath.Join(t.TempDir(), "out"))},
		"migrate plan":               {cluster, append(cluster, "-o", "json")},
		"migrate run":                {append(cluster, "--yes")},
		"migrate status":             {cluster},
		"migrate away plan":          {cluster},
		"migrate away run":           {append(cluster, "--yes")},
		"migrate check":              {cluster, append(cluster, "-o", "json")},
		"migrate finish":             {append(cluster, "--yes")},
		"pause":                      {cluster},
		"resume":                     {cluster},
		"recommend":                  {both, append(both, "--explain", "web"), append(both, "-o", "yaml"), append(both, "-o", "markdown"), append(both, "-o", "csv"), append(both, "-o", "html"), append(both, "-o", "strategic-merge"), append(both, "-o", "kustomize"), append(both, "-o", "helm-values"), append(both, "-o", "json-patch"), {"--from", files}, {"--from", files, "-o", "markdown"}, {"--from", files, "-o", "yaml"}, {"--from", files, "--explain", "."}, {"--from", broken}},
		"recommend adopt":            {append(cluster, "-n", "shop", "--name", "web")},
		"recommend list":             {cluster},
		"recommend trigger":          {append(cluster, "-n", "shop", "--name", "web")},
		"recommendation-rule create": {append(cluster, "--target", `[{"kind":"Deployment"}]`, "--run-interval", "4h", "--name", hostileText)},
		"recommendation-rule list":   {cluster},
		"report":                     {cluster, append(cluster, "-o", "markdown")},
		"status":                     {cluster, append(cluster, "shop/deployment/web"), append(cluster, "-o", "json")},
		"view-recommend":             {append(cluster, "--selector", `{"name":"web"}`)},
		"bundle":                     {append(cluster, "--file", filepath.Join(t.TempDir(), "bundle.tar.gz"))},
		"simulate autoscale":         {{files}, {broken}},
	} {
		for _, args := range runs {
			name := path + " " + strings.Join(args[min(len(args), 2):], " ")
			t.Run(name, func(t *testing.T) {
				_, out, errOut := runCrane(t, append(strings.Fields(path), args...)...)
				for stream, text := range map[string]string{"stdout": out, "stderr": errOut} {
					if !termtext.IsSafe(text) {
						t.Errorf("crane %s writes control characters to %s: %q", path, stream, shorten(text))
					}

					if i := slices.IndexFunc(strings.Split(text, "\n"), func(line string) bool { return strings.HasPrefix(line, "FORGED") }); i >= 0 {
						t.Errorf("crane %s prints text of the cluster as line %d of %s: %q", path, i, stream, shorten(text))
					}
				}

				t.Logf("stdout: %s\nstderr: %s", shorten(out), shorten(errOut))
			})
		}
	}
}

func shorten(text string) string { return text[:min(len(text), 3000)] }

// writeHostileSeries writes a series of eight days, or a file that is none.
func writeHostileSeries(t *testing.T, path string, valid bool) {
	t.Helper()

	var b strings.Builder
	b.WriteString("ts,value\n")
	for i := range 8 * 24 * 12 {
		fmt.Fprintf(&b, "%d,0.5\n", 1_699_920_000+i*300)
	}

	if !valid {
		b.WriteString("1," + hostileText)
	}

	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// hostilePrometheus returns the address of a server whose labels and errors are hostile.
func hostilePrometheus(t *testing.T) string {
	t.Helper()

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		query := r.FormValue("query")
		if strings.Contains(r.URL.Path, "labels") || strings.Contains(query, "version") {
			w.WriteHeader(http.StatusUnprocessableEntity)
			writeHostile(w, map[string]any{"status": "error", "errorType": "execution", "error": hostileText})
			return
		}

		labels := map[string]string{"namespace": hostileText, "pod": hostileText, "container": hostileText, "workload": hostileText, "node": hostileText, "__name__": hostileText}
		kind := "vector"
		series := map[string]any{"metric": labels, "value": []any{1_700_000_000, "1"}}
		if strings.HasSuffix(r.URL.Path, "query_range") || strings.HasSuffix(query, "]") {
			kind = "matrix"
			series = map[string]any{"metric": labels, "values": []any{[]any{1_700_000_000, "1"}, []any{1_700_000_300, "2"}}}
		}

		writeHostile(w, map[string]any{"status": "success", "warnings": []string{hostileText}, "data": map[string]any{"resultType": kind, "result": []any{series}}})
	}))

	t.Cleanup(server.Close)
	return server.URL
}

func writeHostile(w http.ResponseWriter, value any) {
	if err := json.NewEncoder(w).Encode(value); err != nil {
		panic(err)
	}
}

// hostileCluster returns a kubeconfig of an API server that has one object of each kind, with hostile text in each field that the
// API accepts as any text and in most others.
func hostileCluster(t *testing.T) string {
	t.Helper()

	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, analysisv1alpha1.AddToScheme, autoscalingv1alpha1.AddToScheme, predictionv1alpha1.AddToScheme} {
		if err := add(types); err != nil {
			t.Fatal(err)
		}
	}

	server := httptest.NewServer(hostileAPI{types})
	t.Cleanup(server.Close)

	path := filepath.Join(t.TempDir(), "kubeconfig")
	content := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u, namespace: shop}}]\nclusters: [{name: c, cluster: {server: %q}}]\nusers: [{name: u, user: {}}]\n", server.URL)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}

	return path
}

// hostileAPI answers as an API server.
type hostileAPI struct{ types *runtime.Scheme }

// clusterScoped are the kinds without a namespace that commands read.
func clusterScoped() []string {
	return []string{"Node", "Namespace", "ClusterRoleBinding", "ClusterRole", "PersistentVolume", "StorageClass", "RecommendationRule", "PriorityClass", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}
}

func (a hostileAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Warning", `299 - "`+strings.ReplaceAll(termtext.Line(hostileText), `\`, `\\`)+`"`)

	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.URL.Path == "/version":
		writeHostile(w, map[string]string{"gitVersion": "v1.37.0", "major": "1", "minor": "37"})
	case r.URL.Path == "/api":
		writeHostile(w, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case r.URL.Path == "/apis":
		writeHostile(w, a.groups())
	case parts[0] == "api" && len(parts) == 2:
		writeHostile(w, a.resources(schema.GroupVersion{Version: "v1"}))
	case parts[0] == "apis" && len(parts) == 3:
		writeHostile(w, a.resources(schema.GroupVersion{Group: parts[1], Version: parts[2]}))
	case r.Method == http.MethodPost && strings.Contains(r.URL.Path, "subjectaccessreviews"):
		writeHostile(w, map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "status": map[string]any{"allowed": true}})
	default:
		a.serveObjects(w, parts)
	}
}

// serveObjects answers with a list of one object, that object, or an error.
func (a hostileAPI) serveObjects(w http.ResponseWriter, parts []string) {
	version := schema.GroupVersion{Version: "v1"}
	parts = parts[1:]
	if parts[0] != "v1" {
		version = schema.GroupVersion{Group: parts[0], Version: parts[1]}
		parts = parts[1:]
	}

	parts = parts[1:]
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}

	for kind := range a.types.KnownTypes(version) {
		plural, _ := meta.UnsafeGuessKindToResource(version.WithKind(kind))
		if plural.Resource != parts[0] || len(parts) > 1 && parts[1] == "none" {
			continue
		}

		object := a.object(version.WithKind(kind))
		if len(parts) > 1 {
			writeHostile(w, object)
			return
		}

		writeHostile(w, map[string]any{"apiVersion": version.String(), "kind": kind + "List", "metadata": map[string]any{}, "items": []any{object}})
		return
	}

	w.WriteHeader(http.StatusNotFound)
	writeHostile(w, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Message: hostileText, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
}

func (a hostileAPI) groups() metav1.APIGroupList {
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, version := range a.types.PrioritizedVersionsAllGroups() {
		if version.Group == "" || slices.ContainsFunc(list.Groups, func(g metav1.APIGroup) bool { return g.Name == version.Group }) {
			continue
		}

		preferred := metav1.GroupVersionForDiscovery{GroupVersion: version.String(), Version: version.Version}
		list.Groups = append(list.Groups, metav1.APIGroup{Name: version.Group, Versions: []metav1.GroupVersionForDiscovery{preferred}, PreferredVersion: preferred})
	}

	return list
}

func (a hostileAPI) resources(version schema.GroupVersion) metav1.APIResourceList {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version.String()}
	for kind := range a.types.KnownTypes(version) {
		plural, singular := meta.UnsafeGuessKindToResource(version.WithKind(kind))
		if !strings.HasSuffix(kind, "List") {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name:         plural.Resource,
				SingularName: singular.Resource,
				Kind:         kind,
				Namespaced:   !slices.Contains(clusterScoped(), kind),
				Verbs:        metav1.Verbs{"get", "list", "patch", "create", "delete", "watch"},
			})
		}
	}

	return list
}

// object returns an object named web, whose other texts are hostile where the kind needs no certain value.
func (a hostileAPI) object(kind schema.GroupVersionKind) any {
	object, err := a.types.New(kind)
	if err != nil {
		panic(err)
	}

	object.GetObjectKind().SetGroupVersionKind(kind)
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetName("web")
		accessor.SetUID("uid")
		accessor.SetResourceVersion("1")
		if !slices.Contains(clusterScoped(), kind.Kind) {
			accessor.SetNamespace("shop")
		}
	}

	if rec, ok := object.(*analysisv1alpha1.Recommendation); ok {
		rec.Spec.Type = analysisv1alpha1.AnalysisTypeResource
		rec.Spec.AdoptionType = analysisv1alpha1.AdoptionTypeStatus
		rec.Spec.TargetRef.Kind = "Deployment"
		rec.Spec.TargetRef.APIVersion = "apps/v1"
		rec.Spec.TargetRef.Name = "web"
	}

	fillHostile(reflect.ValueOf(object).Elem(), 0)
	return object
}

// fillHostile sets texts that are empty, and the first elements of lists and maps.
func fillHostile(v reflect.Value, depth int) {
	const maxDepth = 12
	if depth > maxDepth || !v.CanSet() {
		return
	}

	switch v.Interface().(type) {
	case metav1.Time, metav1.MicroTime, *metav1.Time, apiresource.Quantity, runtime.RawExtension, metav1.FieldsV1, *metav1.FieldsV1, metav1.TypeMeta:
		return
	}

	switch v.Kind() {
	case reflect.String:
		if v.String() == "" {
			v.SetString(hostileText)
		}
	case reflect.Bool:
	case reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}

		fillHostile(v.Elem(), depth+1)
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 && v.Len() == 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fillHostile(v.Index(0), depth+1)
		}
	case reflect.Map:
		key := reflect.New(v.Type().Key()).Elem()
		value := reflect.New(v.Type().Elem()).Elem()
		fillHostile(key, depth+1)
		fillHostile(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if name != "GenerateName" && name != "ManagedFields" && name != "DeletionTimestamp" {
				fillHostile(v.Field(i), depth+1)
			}
		}
	default:
	}
}

// TestHostileTextRunsEveryCommand checks that a new command is added to TestHostileText.
func TestHostileTextRunsEveryCommand(t *testing.T) {
	source, err := os.ReadFile("hostile_test.go")
	if err != nil {
		t.Fatal(err)
	}

	reasons := map[string]string{
		"dashboard":         "serves a browser; it prints its own address",
		"dashboard serve":   "serves a browser; it prints its own address",
		"migrate undo":      "asks for the state file of the operator",
		"simulate schedule": "reads a scenario file of the operator",
		"version":           "prints the version",
	}

	var visit func(cmd *cobra.Command, path string)
	visit = func(cmd *cobra.Command, path string) {
		for _, sub := range cmd.Commands() {
			visit(sub, strings.TrimSpace(path+" "+sub.Name()))
		}

		isGroup := cmd.HasSubCommands() && path != "recommend" && path != "dashboard"
		if path == "" || isGroup || reasons[path] != "" {
			return
		}

		if !strings.Contains(string(source), fmt.Sprintf("%q:", path)) {
			t.Errorf("crane %s is not in TestHostileText, and has no reason why", path)
		}
	}

	visit(NewCommand(Streams{In: strings.NewReader(""), Out: &strings.Builder{}, Err: &strings.Builder{}}, "crane"), "")
}
