// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package webapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/pkg/series"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fakeAuth authenticates a token as the user of that name, and permits what allowed lists.
type fakeAuth struct {
	allowed map[string]bool
	err     error
	asked   []string
	wait    func()
}

func (f *fakeAuth) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	name, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if f.wait != nil {
		f.wait()
	}

	if name == "expired" {
		return nil, false, errors.New("token expired")
	}

	return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, ok, nil
}

func (f *fakeAuth) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	asked := fmt.Sprintf("%s %s %s%s/%s/%s", a.GetUser().GetName(), a.GetVerb(), a.GetPath(), a.GetNamespace(), a.GetResource(), a.GetName())
	f.asked = append(f.asked, asked)
	if f.allowed[a.GetUser().GetName()] {
		return authorizer.DecisionAllow, "", f.err
	}

	return authorizer.DecisionNoOpinion, "no rule", f.err
}

// fakeSource is a data source.
type fakeSource struct {
	err    error
	window metrics.Window
	query  string
	wait   func(context.Context)
}

func (f *fakeSource) Instant(ctx context.Context, query string, at time.Time) ([]metrics.Sample, error) {
	f.query = query
	if f.wait != nil {
		f.wait(ctx)
	}

	return []metrics.Sample{{Labels: metrics.Labels{"pod": "a"}, Time: at, Value: 0.25}}, f.err
}

func (f *fakeSource) Range(_ context.Context, query string, w metrics.Window) ([]metrics.LabeledSeries, error) {
	f.query = query
	f.window = w
	return []metrics.LabeledSeries{{
		Labels: metrics.Labels{"pod": "a"}, Series: series.Series{Start: w.Start, Step: w.Step, Values: []float64{1, series.Gap(), 3}},
	}}, f.err
}

type fixture struct {
	*API
	gate *fakeAuth
	data *fakeSource
	past error
}

func setup(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()

	scheme := runtime.NewScheme()
	if err := errors.Join(analysisv1alpha1.AddToScheme(scheme), predictionv1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}

	f := &fixture{gate: &fakeAuth{allowed: map[string]bool{"ann": true}}, data: &fakeSource{}}
	var err error
	f.API, err = New(Config{
		Objects: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), Queries: f.data, MaxPoints: 100,
		PastSeries: func(_ context.Context, _ *predictionv1alpha1.TimeSeriesPrediction, _ *predictionv1alpha1.PredictionMetric, w metrics.Window) ([]metrics.LabeledSeries, error) {
			return []metrics.LabeledSeries{{Series: series.Series{Start: w.Start, Step: w.Step, Values: []float64{1, 2, series.Gap(), 4}}}}, f.past
		},
		Authenticator: f.gate, Authorizer: f.gate, Clock: clocktesting.NewFakePassiveClock(now),
	})
	if err != nil {
		t.Fatal(err)
	}

	return f
}

// get requests a path as a user; "" is anonymous.
func (f *fixture) get(t *testing.T, as, path string) *httptest.ResponseRecorder {
	t.Helper()

	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
	if as != "" {
		r.Header.Set("Authorization", "Bearer "+as)
	}

	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	return w
}

// body is the envelope of a response.
func body(t *testing.T, w *httptest.ResponseRecorder) (data, problem string) {
	t.Helper()

	var e struct {
		Error *string
		Data  json.RawMessage
	}

	if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Error == nil || e.Data == nil {
		t.Fatalf("the answer %s is no envelope: %v, want error and data", w.Body, err)
	}

	return string(e.Data), *e.Error
}

func rec(namespace, name string) *analysisv1alpha1.Recommendation {
	return &analysisv1alpha1.Recommendation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// TestRoutes_Permissions checks that every route but two requires authentication, and exactly the permission for its data.
func TestRoutes_Permissions(t *testing.T) {
	f := setup(t)
	open := map[string]bool{"/api/healthz": true, "/api/version": true}
	needs := map[string]string{
		"/api/v1/recommendation":                              "list /recommendations/",
		"/api/v1/recommendation?namespace=shop":               "list shop/recommendations/",
		"/api/v1/recommendation?namespace=shop&namespace=all": "list shop/recommendations/",
		"/api/v1/recommendationRule":                          "list /recommendationrules/",
		"/api/v1/recommendationRule?namespace=shop":           "list /recommendationrules/",
		"/api/v1/prometheus/query?query=up&time=1":            "get /crane/prometheus//",
		"/api/v1/prometheus/query_range?query=up":             "get /crane/prometheus//",
		"/api/prediction/debug/shop/web":                      "get shop/timeseriespredictions/web",
	}

	for _, r := range f.routes() {
		if (r.permission == nil) != open[r.path] {
			t.Errorf("route %s is open: %t, want %t", r.path, r.permission == nil, open[r.path])
		}
	}

	for path := range open {
		if w := f.get(t, "", path); w.Code != http.StatusOK {
			t.Errorf("GET %s = %d, want %d", path, w.Code, http.StatusOK)
		}
	}

	for path, want := range needs {
		for as, status := range map[string]int{"": http.StatusUnauthorized, "expired": http.StatusUnauthorized, "bob": http.StatusForbidden} {
			w := f.get(t, as, path)
			if data, problem := body(t, w); w.Code != status || data != "null" || problem == "" {
				t.Errorf("%s as %q: status %d, want %d; %s %s", path, as, w.Code, status, data, problem)
			}
		}

		f.gate.asked = nil
		f.get(t, "ann", path)

		if len(f.gate.asked) != 1 || f.gate.asked[0] != "ann "+want {
			t.Errorf("%s asks %q, want %q", path, f.gate.asked, want)
		}
	}

	f.gate.err = errors.New("no API server")
	if w := f.get(t, "ann", "/api/v1/recommendation"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("GET without a decision of the API server = %d, want %d", w.Code, http.StatusServiceUnavailable)
	}
}

// TestRoutes_ReadOnly checks that only GET and HEAD are allowed.
func TestRoutes_ReadOnly(t *testing.T) {
	f := setup(t)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		r := httptest.NewRequestWithContext(t.Context(), method, "/api/v1/recommendationRule", strings.NewReader(`{}`))
		r.Header.Set("Authorization", "Bearer ann")
		w := httptest.NewRecorder()
		f.ServeHTTP(w, r)

		if w.Code != http.StatusMethodNotAllowed || len(f.gate.asked) > 0 {
			t.Errorf("%s = %d, %d reviews, want %d and none", method, w.Code, len(f.gate.asked), http.StatusMethodNotAllowed)
		}
	}

	if w := f.get(t, "ann", "/api/v1/recommendation/adopt/shop/web"); w.Code != http.StatusNotFound {
		t.Errorf("GET of a route that writes = %d, want %d", w.Code, http.StatusNotFound)
	}
}

// TestRoutes_ListObjects checks that recommendations of all namespaces or one, and rules, are returned in gocrane's envelope.
func TestRoutes_ListObjects(t *testing.T) {
	f := setup(t, rec("shop", "web"), rec("bank", "web"), &analysisv1alpha1.RecommendationRule{ObjectMeta: metav1.ObjectMeta{Name: "all"}})
	names := func(path string) string {
		data, problem := body(t, f.get(t, "ann", path))
		var list metav1.PartialObjectMetadataList
		if err := json.Unmarshal([]byte(data), &list); err != nil || problem != "" {
			t.Fatalf("GET %s: %v, error %q, want a list", path, err, problem)
		}

		var out []string
		for _, o := range list.Items {
			out = append(out, o.Namespace+"/"+o.Name)
		}

		return strings.Join(out, " ")
	}

	for path, want := range map[string]string{
		"/api/v1/recommendation": "bank/web shop/web", "/api/v1/recommendation?namespace=shop": "shop/web",
		"/api/v1/recommendation?namespace=none": "", "/api/v1/recommendationRule": "/all",
	} {
		if got := names(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}

	f.config.Objects = unstartedCache{}
	if _, problem := body(t, f.get(t, "ann", "/api/v1/recommendation")); !strings.Contains(problem, "repeat the request in some seconds") {
		t.Errorf("listing before the cache has started: error %q, want a request to repeat it", problem)
	}
}

type unstartedCache struct{ client.Reader }

func (unstartedCache) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return &cache.ErrCacheNotStarted{}
}

// TestRoutes_Queries checks that vectors and matrices have Prometheus' format, and that errors of a query are reported.
func TestRoutes_Queries(t *testing.T) {
	f := setup(t)
	expr := url.QueryEscape(`up{job="a"}`)

	data, problem := body(t, f.get(t, "ann", "/api/v1/prometheus/query?time=1000.5&query="+expr))
	if want := `[{"metric":{"pod":"a"},"value":[1000.5,"0.25"]}]`; data != want || problem != "" || f.data.query != `up{job="a"}` {
		t.Errorf("query of %q = %s, error %q, want %s", f.data.query, data, problem, want)
	}

	data, problem = body(t, f.get(t, "ann", "/api/v1/prometheus/query_range?start=60&end=180&step=1m&query="+expr))
	if want := `[{"metric":{"pod":"a"},"values":[[60,"1"],[180,"3"]]}]`; data != want || problem != "" {
		t.Errorf("query_range = %s, error %q, want %s", data, problem, want)
	}
	if w := f.data.window; w.Start.Unix() != 60 || w.End.Unix() != 240 || w.Step != time.Minute {
		t.Errorf("query_range reads %+v, want a window with its end in it", w)
	}

	for path, want := range map[string]string{
		"query?time=1":                                  "query is not given",
		"query?query=up":                                "time is not given",
		"query?query=up&time=noon":                      "time: ",
		"query?query=up&time=NaN":                       "time: ",
		"query?query=up&time=1e300":                     "time: ",
		"query?query=up&time=-1":                        "time: ",
		"query_range?query=up&start=1&end=2":            "step is not given",
		"query_range?query=up&start=1&end=2&step=10":    "step: ",
		"query_range?query=up&start=1&end=2&step=1ns":   "step: ",
		"query_range?query=up&start=2&end=1&step=1s":    "end is before start",
		"query_range?query=up&start=0&end=100&step=1s":  "more than 100",
		"query_range?query=up&start=0&end=9e9&step=1ms": "end: ",
	} {
		w := f.get(t, "ann", "/api/v1/prometheus/"+path)
		if data, problem := body(t, w); data != "null" || !strings.Contains(problem, want) || w.Code != http.StatusOK {
			t.Errorf("%s: %d, %s, %q; want %q", path, w.Code, data, problem, want)
		}
	}

	f.data.err = errors.New("Prometheus is down")
	if _, problem := body(t, f.get(t, "ann", "/api/v1/prometheus/query?query=up&time=1")); !strings.Contains(problem, "Prometheus is down") {
		t.Errorf("query of a source that is down: error %q, want its reason", problem)
	}
	if w := f.get(t, "ann", "/api/v1/prometheus/query?time=1&query="+strings.Repeat("a", maxURL)); w.Code != http.StatusRequestURITooLong {
		t.Errorf("GET with a long URL = %d, want %d", w.Code, http.StatusRequestURITooLong)
	}
}

// TestErrorsNameNoAddress checks that clients see the cause of a failed query and not the address of the source, which only the log has.
func TestErrorsNameNoAddress(t *testing.T) {
	f := setup(t, &predictionv1alpha1.TimeSeriesPrediction{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec:       predictionv1alpha1.TimeSeriesPredictionSpec{PredictionMetrics: []predictionv1alpha1.PredictionMetric{{ResourceIdentifier: "cpu"}}},
	})
	failure := &prometheus.Error{Kind: prometheus.Unreachable, URL: "http://10.1.2.3:9090/api/v1/query", Err: errors.New("dial tcp 10.1.2.3:9090")}

	f.data.err = failure
	f.past = failure
	for _, path := range []string{
		"/api/v1/prometheus/query?query=up&time=1", "/api/v1/prometheus/query_range?query=up&start=1&end=2&step=1s", "/api/prediction/debug/shop/web",
	} {
		var log strings.Builder
		logger := funcr.New(func(_, args string) { log.WriteString(args) }, funcr.Options{})
		r := httptest.NewRequestWithContext(logr.NewContext(t.Context(), logger), http.MethodGet, path, http.NoBody)
		r.Header.Set("Authorization", "Bearer ann")
		w := httptest.NewRecorder()
		f.ServeHTTP(w, r)

		if answer := w.Body.String(); strings.Contains(answer, "10.1.2.3") || !strings.Contains(answer, "Prometheus cannot be reached") {
			t.Errorf("GET %s = %s, want the failure without addresses", path, answer)
		}
		if !strings.Contains(log.String(), "dial tcp 10.1.2.3:9090") {
			t.Errorf("GET %s logs %s, want the address", path, log.String())
		}
	}
}

// TestServe_Limits checks the limits on concurrent requests, duration and size.
func TestServe_Limits(t *testing.T) {
	f := setup(t)
	begun := make(chan struct{})
	release := make(chan struct{})

	f.data.wait = func(ctx context.Context) {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("the query has no deadline, want one")
		}

		begun <- struct{}{}
		<-release
	}

	done := make(chan int)
	for range maxConcurrent {
		go func() { done <- f.get(t, "ann", "/api/v1/prometheus/query?query=up&time=1").Code }()
		<-begun
	}

	if w := f.get(t, "ann", "/api/v1/recommendation"); w.Code != http.StatusTooManyRequests {
		t.Errorf("GET of one more than %d at once = %d, want %d", maxConcurrent, w.Code, http.StatusTooManyRequests)
	}

	close(release)
	for range maxConcurrent {
		if code := <-done; code != http.StatusOK {
			t.Errorf("GET at once with others = %d, want %d", code, http.StatusOK)
		}
	}

	if w := f.get(t, "ann", "/api/v1/recommendation"); w.Code != http.StatusOK {
		t.Errorf("GET after the others = %d, want %d", w.Code, http.StatusOK)
	}
	if _, err := encode(envelope{Data: strings.Repeat("x", maxAnswer)}); !errors.Is(err, errTooLong) {
		t.Errorf("encode of a long answer: %v, want errTooLong", err)
	}
}

// TestServe_LimitBeforeAuthentication checks that requests are bounded before their tokens are checked: each check may be a request to the API server.
func TestServe_LimitBeforeAuthentication(t *testing.T) {
	f := setup(t)
	begun := make(chan struct{})
	release := make(chan struct{})
	var arrived atomic.Int32
	f.gate.wait = func() {
		if arrived.Add(1) <= maxArrivals {
			begun <- struct{}{}
			<-release
		}
	}

	done := make(chan int)
	for range maxArrivals {
		go func() { done <- f.get(t, "expired", "/api/v1/recommendation").Code }()
		<-begun
	}

	if w := f.get(t, "expired", "/api/v1/recommendation"); w.Code != http.StatusTooManyRequests {
		t.Errorf("GET of one more than %d arrivals = %d, want %d", maxArrivals, w.Code, http.StatusTooManyRequests)
	}

	close(release)
	for range maxArrivals {
		if code := <-done; code != http.StatusUnauthorized {
			t.Errorf("GET with an expired token = %d, want %d", code, http.StatusUnauthorized)
		}
	}
}

// TestServe_UnknownTokens checks that unknown tokens are reviewed at a bounded rate, and that a known one is served meanwhile.
func TestServe_UnknownTokens(t *testing.T) {
	f := setup(t)
	reviews := 0
	f.gate.wait = func() { reviews++ }
	if w := f.get(t, "alice", "/api/v1/recommendation"); w.Code == http.StatusUnauthorized || w.Code == http.StatusTooManyRequests {
		t.Fatalf("GET with a known token = %d, want it reviewed", w.Code)
	}

	for i := range 500 {
		f.get(t, fmt.Sprint("guess-", i), "/api/v1/recommendation")
	}

	const most = 50
	if reviews > most {
		t.Errorf("500 unknown tokens cost %d reviews, want at most %d", reviews, most)
	}
	if w := f.get(t, "alice", "/api/v1/recommendation"); w.Code == http.StatusTooManyRequests {
		t.Errorf("GET with a known token beside 500 unknown ones = %d, want it served", w.Code)
	}
}

// TestStreamedLists checks that lists have the JSON of their values, that their size is bounded, and that the list is not modified.
func TestStreamedLists(t *testing.T) {
	rec := func(name string) analysisv1alpha1.Recommendation {
		r := analysisv1alpha1.Recommendation{ObjectMeta: metav1.ObjectMeta{Name: name}}
		r.Status.RecommendedValue = `"items":null <&>`
		return r
	}

	list := &analysisv1alpha1.RecommendationList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []analysisv1alpha1.Recommendation{rec("a"), rec("b")}}
	for _, data := range []any{
		list, &analysisv1alpha1.RecommendationList{Items: []analysisv1alpha1.Recommendation{}},
		[]vectorSample{},
		[]vectorSample{{metrics.Labels{"a": "b"}, point{now, 1}}},
		[]matrixSeries{{Metric: metrics.Labels{"a": "null"}}, {}},
	} {
		w := httptest.NewRecorder()
		if err := writeData(w, data); err != nil {
			t.Fatal(err)
		}

		want, err := encode(envelope{Data: data})
		if err != nil {
			t.Fatal(err)
		}

		if w.Body.String() != string(want) {
			t.Errorf("%s, want %s", w.Body, want)
		}
	}

	if len(list.Items) != 2 {
		t.Errorf("writeData left %d items in the list, want 2", len(list.Items))
	}

	long := []vectorSample{{Metric: metrics.Labels{"a": strings.Repeat("x", maxAnswer/2)}}, {Metric: metrics.Labels{"a": strings.Repeat("x", maxAnswer/2)}}}
	w := httptest.NewRecorder()
	if err := writeData(w, long); !errors.Is(err, errTooLong) || w.Body.Len() > 0 {
		t.Errorf("writeData of a long list: %v after %d bytes, want errTooLong and none", err, w.Body.Len())
	}
}

func prediction() *predictionv1alpha1.TimeSeriesPrediction {
	return &predictionv1alpha1.TimeSeriesPrediction{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: predictionv1alpha1.TimeSeriesPredictionSpec{PredictionMetrics: []predictionv1alpha1.PredictionMetric{
			{ResourceIdentifier: "cpu"}, {ResourceIdentifier: "<script>alert(1)</script>"},
		}},
		Status: predictionv1alpha1.TimeSeriesPredictionStatus{
			Conditions: []metav1.Condition{{Type: "Ready", Status: "True", Reason: "AllPredicted", Message: "a < b"}},
			PredictionMetrics: []predictionv1alpha1.PredictionMetricStatus{{
				ResourceIdentifier: "cpu", Ready: true, Reason: "made by auto",
				Prediction: []predictionv1alpha1.MetricTimeSeries{{
					Labels: []predictionv1alpha1.Label{{Name: "pod", Value: "a"}},
					Samples: []predictionv1alpha1.Sample{
						{Value: "2", Timestamp: now.Unix()}, {Value: "NaN", Timestamp: now.Unix() + 60}, {Value: "junk", Timestamp: 0}, {Value: "3", Timestamp: now.Unix() + 3600},
					},
				}},
			}},
		},
	}
}

// TestDebugPage checks that a page shows history and forecast in one chart, reports missing data, and escapes markup.
func TestDebugPage(t *testing.T) {
	f := setup(t, prediction())
	w := f.get(t, "ann", "/api/prediction/debug/shop/web")
	page := w.Body.String()

	if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
		t.Fatalf("the debug page has status %d, %v, want HTML", w.Code, w.Header())
	}

	for _, want := range []string{
		"shop/web", "AllPredicted", "a &lt; b", "made by auto", `pod=&#34;a&#34;`, `class="past" d="M0.0 165.0L`, `class="forecast" d="M`, "&lt;script&gt;",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("there is no %q in\n%s", want, page)
		}
	}

	if strings.Contains(page, "<script>") || strings.Contains(page, "NaN") {
		t.Error("the debug page has a script or NaN, want none")
	}

	f.past = errors.New("the source is down")
	if page := f.get(t, "ann", "/api/prediction/debug/shop/web").Body.String(); !strings.Contains(page, "the source is down") {
		t.Errorf("the debug page is %s, want the reason why there is no history", page)
	}
	if w := f.get(t, "ann", "/api/prediction/debug/shop/none"); w.Code != http.StatusNotFound {
		t.Errorf("the debug page of an unknown prediction = %d, want %d", w.Code, http.StatusNotFound)
	}
}

func TestNew_MissingDependencies(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("New without dependencies = nil, want an error")
	}
}

// TestRoutes_Version checks the form in gocrane: a JSON object in a string.
func TestRoutes_Version(t *testing.T) {
	data, problem := body(t, setup(t).get(t, "", "/api/version"))
	var text string
	fields := map[string]string{}
	if err := errors.Join(json.Unmarshal([]byte(data), &text), json.Unmarshal([]byte(text), &fields)); err != nil || problem != "" {
		t.Fatalf("the version is %s: %v, error %q, want a JSON text", data, err, problem)
	}

	for _, name := range []string{"gitVersion", "buildDate", "goVersion", "compiler", "platform"} {
		if fields[name] == "" {
			t.Errorf("the version %s has no %s, want it", text, name)
		}
	}

	if len(fields) != 7 {
		t.Errorf("%d fields in %s, want 7", len(fields), text)
	}
}
