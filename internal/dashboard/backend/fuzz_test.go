// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/prometheus/model/labels"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/dashboard"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/web"
)

const (
	// maxResponse is more than any response about the objects of the test needs.
	maxResponse = 4 << 20
	// maxAnswerTime is far above the time of any request of the test, and finds those that wait for something that never comes.
	maxAnswerTime = 30 * time.Second
)

// hostileSite is a dashboard that is reached with any request.
type hostileSite struct {
	name    string
	cluster string
	server  *dashboard.Server
	// cookie or bearer and csrf are the credentials of a person.
	cookie *http.Cookie
	key    string
	bearer string
	csrf   string
	panics atomic.Int64
	// answered counts the responses by path and status.
	answered map[string]int
}

// openSites opens the dashboard of files, of a kubeconfig and of a cluster, of the same hostile objects and history.
func openSites(t testing.TB) []*hostileSite {
	t.Helper()

	api := newFakeCluster(t, hostileObjects()...)
	history := openHistory(t)
	kubeconfig := api.kubeconfig(t)

	files := newFixtureConfig(t, "files")
	files.From = usageDir(t)
	local := newFixtureConfig(t, "default")
	local.Access = &clusteraccess.Access{Kubeconfig: kubeconfig}
	local.Personal = local.Access
	local.CranedNamespace = "crane-system"
	local.Scheduler = "http://127.0.0.1:1"
	local.Prometheus.Address = history

	out := []*hostileSite{
		openSite(t, "files", dashboard.Config{Mode: contract.ModeFiles, Backends: []dashboard.Backend{New(files)}}),
		openSite(t, "local", dashboard.Config{Mode: contract.ModeLocal, Backends: []dashboard.Backend{New(local)}}),
	}

	inCluster := newFixtureConfig(t, "prod")
	inCluster.Access = &clusteraccess.Access{Kubeconfig: kubeconfig}
	inCluster.CranedNamespace = "crane-system"
	inCluster.Scheduler = "http://127.0.0.1:1"

	inCluster.Prometheus.Address = history
	view, reviews, err := NewPersonal(inCluster)
	if err != nil {
		t.Fatalf("newPersonalView: %v", err)
	}

	return append(out, openSite(t, "cluster", dashboard.Config{
		Mode:     contract.ModeCluster,
		Backends: []dashboard.Backend{dashboard.NewGuard(view, reviews)},
		Reviews:  reviews,
	}))
}

// openSite opens a dashboard with a session.
func openSite(t testing.TB, name string, config dashboard.Config) *hostileSite {
	t.Helper()

	page, err := web.Handler()
	if err != nil {
		page = http.NotFoundHandler() // The bundle is not built.
	}

	config.Static = page
	config.Clock = clock.RealClock{}
	config.Audit = slog.New(slog.NewTextHandler(io.Discard, nil))
	site := &hostileSite{name: name, server: dashboard.New(config, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8090})}

	if config.Reviews != nil {
		site.bearer = "ann"
	} else {
		login := site.send(t.Context(), "GET "+strings.TrimPrefix(site.server.Link(), "http://"+dashboardAddress)+" HTTP/1.1\r\n\r\n", true)
		site.cookie = login.Result().Cookies()[0]
		_, site.key, _ = strings.Cut(login.Header().Get("Location"), "#key=")
	}

	var session contract.Session
	if err := json.Unmarshal(site.send(t.Context(), "GET "+contract.Prefix+contract.PathSession+" HTTP/1.1\r\n\r\n", true).Body.Bytes(), &session); err != nil || !session.Authenticated {
		t.Fatalf("opening the dashboard of %s: %v, session %+v, want an authenticated one", name, err, session)
	}

	site.csrf = session.CSRFToken
	site.cluster = session.Clusters[0].Name
	return site
}

// send sends a request, written as in HTTP/1.1, with the credentials of the person if it has no others. It returns nil for a request that a
// server does not read.
func (s *hostileSite) send(ctx context.Context, text string, credentials bool) *httptest.ResponseRecorder {
	head, body, _ := strings.Cut(text, "\r\n\r\n")
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head + "\r\n\r\n")))
	if err != nil || len(head) > 32<<10 {
		return nil
	}

	r.Body = io.NopCloser(strings.NewReader(body))
	r.ContentLength = int64(len(body))
	if r.Host == "" {
		r.Host = dashboardAddress
	}
	if credentials {
		s.addCredentials(r)
	}

	log := funcr.New(func(_, line string) {
		if strings.Contains(line, "recovered from a panic") {
			s.panics.Add(1)
			fmt.Fprintln(os.Stderr, strings.ReplaceAll(line, `\n`, "\n"))
		}
	}, funcr.Options{})

	w := httptest.NewRecorder()
	s.server.ServeHTTP(w, r.WithContext(logr.NewContext(ctx, log)))
	return w
}

func (s *hostileSite) addCredentials(r *http.Request) {
	if s.cookie != nil {
		r.AddCookie(s.cookie)
		r.Header.Set(contract.SessionKeyHeader, s.key)
	}

	if s.bearer != "" && r.Header.Get("Authorization") == "" {
		r.Header.Set("Authorization", "Bearer "+s.bearer)
	}

	if s.csrf != "" && r.Header.Get(contract.CSRFHeader) == "" {
		r.Header.Set(contract.CSRFHeader, s.csrf)
	}

	if r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", "application/json")
	}
}

// check sends a request and checks what holds for every request: it ends soon, without a panic, with a bounded response; JSON is valid; an
// error of the API has a reason, and is not one of the server while cluster and Prometheus are well.
func (s *hostileSite) check(t *testing.T, text string, credentials bool) {
	t.Helper()

	// A session of a kubeconfig cannot be opened again.
	if s.cookie != nil && strings.Contains(strings.SplitN(text, "\r\n", 2)[0], contract.PathLogout) {
		return
	}

	start := time.Now()
	before := s.panics.Load()

	w := s.send(t.Context(), text, credentials)
	if w == nil {
		return
	}

	fail := func(format string, args ...any) {
		t.Helper()
		t.Errorf("dashboard of %s: %.300q: status %d, body %.300s: %s", s.name, text, w.Code, w.Body, fmt.Sprintf(format, args...))
	}

	if took := time.Since(start); took > maxAnswerTime {
		fail("took %s, want at most %s", took, maxAnswerTime)
	}
	if s.panics.Load() > before {
		fail("its work panicked")
	}
	if w.Code < 200 || w.Code == http.StatusInternalServerError || w.Code > 599 {
		fail("want a status that has a cause in the request or the cluster")
	}

	checkBody(fail, w)
	if s.answered != nil {
		path, _, _ := strings.Cut(strings.Fields(text)[1], "?")
		s.answered[fmt.Sprintf("%s %d", path, w.Code)]++
	}
}

// checkBody checks the body of a response.
func checkBody(fail func(format string, args ...any), w *httptest.ResponseRecorder) {
	content := w.Body.Bytes()
	if w.Header().Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(bytes.NewReader(content))
		if err == nil {
			content, err = io.ReadAll(io.LimitReader(z, maxResponse+1))
		}
		if err != nil {
			fail("the compressed body cannot be read: %v", err)
		}
	}

	if len(content) > maxResponse {
		fail("the body has %d bytes, want at most %d", len(content), maxResponse)
	}

	if !strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") || w.Code == http.StatusNotModified {
		return
	}

	if !json.Valid(content) {
		fail("the body is not JSON")
	}

	// The routes of gocrane name the error in a field of the same name, without a reason.
	var failure contract.ErrorBody
	if w.Code >= http.StatusBadRequest && json.Unmarshal(content, &failure) == nil && (failure.Error.Reason == "" || failure.Error.Message == "") {
		fail("the error has no reason or no message")
	}
}

// usageDir returns a directory of usage files.
func usageDir(t testing.TB) string {
	t.Helper()

	dir := t.TempDir()
	for name, text := range map[string]string{"web": "ts,value\n1700006400,0.5\n1700006460,NaN\n1700092800,1e308\n", "empty": "ts,value\n", "(": "ts,value\n1,-1\n2,0\n"} {
		if err := os.WriteFile(filepath.Join(dir, name+".csv"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	return dir
}

// openHistory opens a Prometheus with the usage of the pod of Deployment web, and returns its address.
func openHistory(t testing.TB) string {
	t.Helper()

	const days, step = 8, 5 * time.Minute
	now := time.Now().Truncate(step)
	grid := promserver.Grid{Start: now.Add(-days * 24 * time.Hour), End: now.Add(time.Hour), Step: step}
	usage := func(of func(i int) float64, pairs ...string) promserver.Series {
		return promserver.Series{Labels: labels.FromStrings(pairs...), Fill: func(dst []float64, at int) {
			for i := range dst {
				dst[i] = of(at + i)
			}
		}}
	}

	one := func(int) float64 { return 1 }
	pod := []string{"namespace", "shop", "pod", "web-6d4cf56db6-bbbbb"}
	container := slices.Concat(pod, []string{"container", "app", "image", "i"})

	dir := t.TempDir()
	_, err := promserver.WriteBlocks(t.Context(), dir, grid, []promserver.Series{
		usage(func(i int) float64 { return float64(i) * step.Seconds() * 0.2 }, append(container, "__name__", "container_cpu_usage_seconds_total")...),
		usage(func(i int) float64 { return 3e8 + 2e7*math.Sin(float64(i)/200) }, append(container, "__name__", "container_memory_working_set_bytes")...),
		usage(one, append(pod, "__name__", "kube_pod_owner", "owner_kind", "ReplicaSet", "owner_name", "web-6d4cf56db6", "owner_is_controller", "true")...),
		usage(one, "__name__", "kube_replicaset_owner", "namespace", "shop", "replicaset", "web-6d4cf56db6", "owner_kind", "Deployment", "owner_name", "web", "owner_is_controller", "true"),
	})
	if err != nil {
		t.Fatal(err)
	}

	server, err := promserver.Open(promserver.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = server.Close() })
	return server.URL()
}

// dashboardRoutes returns the method and the path of all routes; {} stands for a value.
func dashboardRoutes() []string {
	var out []string
	for _, path := range []string{
		contract.PathSession, contract.PathOverview, contract.PathWorklist, contract.PathWorkload, contract.PathSeries, contract.PathWhatIf,
		contract.PathAutoscaling, contract.PathForecast, contract.PathNodes, contract.PathPlacement, contract.PathCost, contract.PathRules,
		contract.PathHealth, "/{}",
	} {
		out = append(out, "GET "+contract.Prefix+path)
	}

	for _, path := range []string{contract.PathLogin, contract.PathLogout, contract.PathRules, contract.PathExport, contract.PathAction} {
		out = append(out, "POST "+contract.Prefix+path)
	}

	return append(out,
		"GET /api/v1/cluster", "GET /api/v1/cluster/{}", "POST /api/v1/cluster", "PUT /api/v1/cluster/{}", "DELETE /api/v1/cluster/{}",
		"GET /api/v1/namespaces/{}", "GET /api/v1/recommendationRule", "POST /api/v1/recommendationRule", "PUT /api/v1/recommendationRule/{}",
		"DELETE /api/v1/recommendationRule/{}", "POST /api/v1/recommendation/adopt/{}/{}", "GET /healthz", "GET /", "GET /{}", "GET /workload/{}/{}")
}

// hostileRequests draws requests from hostile values.
type hostileRequests struct{ *rand.Rand }

func (h hostileRequests) pick(from ...string) string { return from[h.IntN(len(from))] }

func (h hostileRequests) value() string {
	if h.IntN(2) == 0 {
		return h.pick("web", "shop", "Deployment", "app", "prod", "c", "pay", "StatefulSet", "rec-0", "rec-3", "ehpa-0", "ehpa-1", "Series", "team")
	}

	return h.pick("", "missing", "deploy", "Rollout", "Pod", "Job", "..", "\x00", "\xff", "(", "[*", "web|.*", "\\Q\\E", "$^", `"`, "'", "{{.}}", "a/b/c/d", "../../etc/passwd",
		"0", "-1", "1", "NaN", "-Inf", "1e308", "1e-300", "9223372036854775807", "1h", "14d", "500", "0.95", "namespace", "label", "csv", "<script>", "\u202e", "%", strings.Repeat("x", 5000), "ehpa-2", "ehpa-3", "ehpa-5", "ehpa-6")
}

// request returns a request of a route.
func (h hostileRequests) request() string {
	routes := dashboardRoutes()
	method, path, _ := strings.Cut(routes[h.IntN(len(routes))], " ")
	if h.IntN(20) == 0 {
		method = h.pick("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "CONNECT", "BREW")
	}

	for strings.Contains(path, "{}") {
		path = strings.Replace(path, "{}", url.PathEscape(h.value()), 1)
	}

	query := url.Values{}
	for _, name := range []string{"namespace", "kind", "name"} {
		if h.IntN(6) > 0 {
			query.Set(name, h.value())
		}
	}

	if h.IntN(3) > 0 {
		query.Set("namespace", "shop")
		query.Set("kind", "Deployment")
	}

	if strings.HasSuffix(path, contract.PathForecast) && h.IntN(4) > 0 {
		query.Set("name", fmt.Sprintf("ehpa-%d", h.IntN(8)))
	}

	if strings.HasSuffix(path, contract.PathWorkload) || strings.HasSuffix(path, contract.PathWhatIf) && h.IntN(2) == 0 {
		query.Set("name", h.pick("web", "missing", "empty"))
		query.Set("container", "app")
	}

	for _, name := range []string{
		"cluster", "container", "pod", "from", "to", "points", "cpuPercentile", "memoryPercentile", "cpuMargin", "memoryMargin", "target", "by", "label", "window", "token",
	} {
		if h.IntN(8) == 0 {
			query.Add(name, h.value())
		}
	}

	var text strings.Builder
	text.WriteString(method + " " + path + "?" + query.Encode() + " HTTP/1.1\r\n")

	for _, name := range []string{"Accept-Encoding", "If-None-Match", "Origin", "Sec-Fetch-Site", "Host", "Cookie", "Content-Type", "Authorization", contract.CSRFHeader, "Range"} {
		if h.IntN(12) == 0 {
			text.WriteString(name + ": " + h.pick("gzip", "*", "null", "same-origin", "cross-site", "127.0.0.1:8090", "application/json; charset=x", "Bearer ", "Bearer bob", "Bearer expired", "a=b; c", "bytes=0-1") + "\r\n")
		}
	}

	if method == http.MethodGet {
		return text.String() + "\r\n"
	}

	return text.String() + "\r\n" + h.body(path)
}

// body returns the body of a write, usually one that fits to the path.
func (h hostileRequests) body(path string) string {
	text := func() string { return jsonOf(h.value()) }
	item := func() string {
		return fmt.Sprintf(`{"cluster":%s,"namespace":%s,"name":%s,"kind":%s,"workload":%s}`, text(), text(), text(), text(), text())
	}
	existing := fmt.Sprintf(`{"cluster":%q,"namespace":%q,"name":"rec-%d"}`, h.pick("c", "prod"), h.pick("shop", "pay"), h.IntN(24))
	items := "[" + h.pick(item(), existing, existing+","+item(), "", "null", "{}", strings.Repeat(existing+",", 300)+existing) + "]"
	rule := fmt.Sprintf("apiVersion: analysis.crane.io/v1alpha1\nkind: RecommendationRule\nmetadata: {name: %s}\nspec: {resourceSelectors: [{kind: %s, apiVersion: apps/v1}], namespaceSelector: {any: true}, runInterval: %s, recommenders: [{name: %s}]}",
		text(), text(), text(), h.pick("Resource", "Replicas", `"`))

	forms := map[string]int{contract.PathAction: 1, contract.PathExport: 3, contract.PathLogin: 5, contract.PathRules: 7}
	form, ok := forms[strings.TrimPrefix(path, contract.Prefix)]
	if !ok || h.IntN(8) == 0 {
		form = h.IntN(8)
	}

	switch form {
	case 0:
		return h.pick("", "{", "null", "[]", `"`, strings.Repeat("[", 20_000), `{"items":1e999}`, "\xff")
	case 1, 2:
		return fmt.Sprintf(`{"action":%q,"dryRun":%v,"items":%s}`, h.pick("adopt", "pause", "resume", "rollback", ""), h.IntN(2) == 0, items)
	case 3, 4:
		return fmt.Sprintf(`{"format":%q,"items":%s}`, h.pick("csv", "kustomize", "patch", "helm", "x"), items)
	case 5:
		return `{"token":` + text() + `}`
	case 6:
		return fmt.Sprintf(`{"apiVersion":"analysis.crane.io/v1alpha1","kind":"RecommendationRule","metadata":{"name":%s},"spec":{"runInterval":%s}}`, text(), text())
	}

	return fmt.Sprintf(`{"dryRun":%v,"yaml":%s}`, h.IntN(3) > 0, jsonOf(h.pick(rule, "a: [", "&a [*a]", strings.Repeat("- ", 5000))))
}

// TestDashboardAnswersEveryRequest sends requests that are drawn from hostile values to all routes, with and without a session.
func TestDashboardAnswersEveryRequest(t *testing.T) {
	sites := openSites(t)
	requests := hostileRequests{rand.New(rand.NewPCG(1, 2))}

	for _, site := range sites {
		site.answered = map[string]int{}
		for _, route := range dashboardRoutes() {
			method, path, _ := strings.Cut(route, " ")
			path = strings.ReplaceAll(path, "{}", "web")
			site.check(t, method+" "+path+"?namespace=shop&kind=Deployment&name=web&pod=web&container=app HTTP/1.1\r\n\r\n{}", true)
			site.check(t, method+" "+path+"?namespace=shop&kind=Deployment&name=missing HTTP/1.1\r\n\r\n{}", true)
		}

		for i := range hostileRecommendations() {
			item := fmt.Sprintf(`{"cluster":%q,"namespace":%q,"name":"rec-%d"}`, site.cluster, []string{"shop", "pay"}[i%2], i)
			for _, format := range []string{"csv", "kustomize", "patch", "helm"} {
				site.check(t, fmt.Sprintf("POST %s%s HTTP/1.1\r\n\r\n"+`{"format":%q,"items":[%s]}`, contract.Prefix, contract.PathExport, format, item), true)
			}

			for _, action := range []string{contract.ActionAdopt, contract.ActionRollback} {
				site.check(t, fmt.Sprintf("POST %s%s HTTP/1.1\r\n\r\n"+`{"action":%q,"dryRun":true,"items":[%s]}`, contract.Prefix, contract.PathAction, action, item), true)
			}
		}
	}

	const number = 6000
	for i := range number {
		sites[i%len(sites)].check(t, requests.request(), requests.IntN(10) > 0)
	}

	for _, site := range sites {
		if site.name == string(contract.ModeFiles) {
			continue
		}

		// The requests reach the data, and are not all refused before.
		for _, path := range []string{
			contract.PathOverview, contract.PathWorklist, contract.PathWorkload, contract.PathSeries, contract.PathWhatIf, contract.PathAutoscaling, contract.PathForecast,
			contract.PathNodes, contract.PathCost, contract.PathRules, contract.PathHealth, contract.PathExport, contract.PathAction,
		} {
			if site.answered[contract.Prefix+path+" 200"] == 0 {
				t.Errorf("dashboard of %s: no request of %s was answered with 200, want at least one", site.name, path)
			}
		}
	}
}

// FuzzDashboard sends any request to the three dashboards.
func FuzzDashboard(f *testing.F) {
	requests := hostileRequests{rand.New(rand.NewPCG(3, 4))}
	for range 60 {
		f.Add(uint8(requests.IntN(256)), requests.request())
	}

	sites := openSites(f)
	f.Fuzz(func(t *testing.T, mode uint8, request string) {
		sites[int(mode)%len(sites)].check(t, request, mode < 224)
	})
}
