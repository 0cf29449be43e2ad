// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"crypto/subtle"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/pkg/units"
)

// Bounds of parameters.
const (
	minPoints     = 200
	defaultPoints = 1200
	maxPoints     = 4000
	maxRange      = 90 * 24 * time.Hour
	// maxName bounds names of objects, in bytes. Those of Kubernetes have at most 253, those of label keys 317.
	maxName       = 320
	maxItems      = 20_000
	maxPatchItems = 2_000
	maxActions    = 200
	maxRule       = 256 << 10
	// maxPreviews bounds the workloads whose recommendation a dry run of a rule computes; each takes about a second.
	maxPreviews = 5
)

func sameToken(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

func (s *Server) routes() {
	s.mux.HandleFunc("GET "+contract.Prefix+contract.PathSession, s.getSession)
	s.mux.HandleFunc("POST "+contract.Prefix+contract.PathLogin, s.login)
	s.write(contract.PathLogout, func(w http.ResponseWriter, r *http.Request) error {
		s.sessions.end(r)
		s.sessions.setCookie(w, "")
		return sendValue(w, r, s.describe(r, session{}, false))
	})

	s.read(contract.PathWorklist, s.getWorklist)
	s.read(contract.PathOverview, ask(s, func(b Backend, ctx context.Context) (contract.Overview, error) {
		list, err := b.Worklist(ctx)
		if err != nil {
			return contract.Overview{}, err
		}

		return b.Overview(ctx, list)
	}))

	s.read(contract.PathWorkload, askTarget(s, func(ctx context.Context, b Backend, _ *http.Request, target contract.Target) (any, error) {
		return b.Workload(ctx, target)
	}))
	s.read(contract.PathSeries, askTarget(s, func(ctx context.Context, b Backend, r *http.Request, target contract.Target) (any, error) {
		timeRange, err := seriesRange(r, s.config.Clock.Now())
		if err != nil {
			return nil, err
		}

		return b.Series(ctx, target, timeRange)
	}))

	s.read(contract.PathWhatIf, askTarget(s, func(ctx context.Context, b Backend, r *http.Request, target contract.Target) (any, error) {
		settings, err := whatIfSettings(r)
		if err != nil {
			return nil, err
		}

		return b.WhatIf(ctx, target, r.URL.Query().Get("container"), settings)
	}))

	s.read(contract.PathAutoscaling, ask(s, Backend.Autoscaling))
	s.read(contract.PathForecast, askNamed(s, "name", "namespace and name of the EffectiveHorizontalPodAutoscaler are required", Backend.Forecast))
	s.read(contract.PathNodes, ask(s, Backend.Nodes))
	s.read(contract.PathPlacement, askNamed(s, "pod", "namespace and pod are required", Backend.Placement))
	s.read(contract.PathCost, s.getCost)
	s.read(contract.PathRules, ask(s, Backend.Rules))
	s.write(contract.PathRules, s.createRule)

	s.read(contract.PathHealth, ask(s, Backend.Health))
	s.write(contract.PathExport, s.export)
	s.write(contract.PathAction, s.act)
	s.gocraneRoutes()
	s.mux.HandleFunc("/api/", func(w http.ResponseWriter, _ *http.Request) {
		sendFailure(w, NewResponseError(http.StatusNotFound, contract.ReasonNotFound, "the API has no route for this path", ""))
	})
	s.mux.HandleFunc("/", s.page)
}

// ask returns the answer of a backend without parameters.
func ask[T any](s *Server, read func(Backend, context.Context) (T, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		b, err := s.backends.of(r)
		if err != nil {
			return nil, err
		}

		return read(b, r.Context())
	}
}

// askTarget returns the answer of a backend about the workload in the parameters.
func askTarget(
	s *Server, read func(context.Context, Backend, *http.Request, contract.Target) (any, error),
) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		b, err := s.backends.of(r)
		if err != nil {
			return nil, err
		}

		q := r.URL.Query()
		target := contract.Target{
			Cluster:   b.Name(),
			Namespace: q.Get("namespace"),
			Kind:      q.Get("kind"),
			Name:      q.Get("name"),
		}
		if target.Kind == "" || target.Name == "" {
			return nil, invalid("kind and name of the workload are required")
		}

		if err := checkNames(target.Namespace, target.Kind, target.Name, q.Get("container")); err != nil {
			return nil, err
		}

		return read(r.Context(), b, r, target)
	}
}

// checkNames returns an error if a name cannot be that of an object: names become parts of expressions, keys of caches and messages.
func checkNames(names ...string) error {
	for _, name := range names {
		if len(name) > maxName || !utf8.ValidString(name) {
			return invalid("the name %.40q is not the name of an object", name)
		}
	}

	return nil
}

func invalid(format string, args ...any) *ResponseError {
	return NewResponseError(http.StatusBadRequest, contract.ReasonInvalid, fmt.Sprintf(format, args...), "")
}

// page serves the UI; an address with the one-time token starts a session and redirects to itself without it.
func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	token := q.Get("token")
	if token == "" || r.Method != http.MethodGet {
		s.config.Static.ServeHTTP(w, r)
		return
	}

	q.Del("token")
	to := *r.URL
	to.Fragment = ""

	// The page moves the key to its storage, which no other port of this host can read. A fragment is sent to no server.
	if cookie, key, ok := s.sessions.redeem(token); ok {
		s.sessions.setCookie(w, cookie)
		to.Fragment = "key=" + key
	}

	to.Scheme = ""
	to.Host = ""
	to.User = nil
	to.RawQuery = q.Encode()
	to.Path = "/" + trimSlashes(to.Path)                  // A path such as //host would leave this server.
	http.Redirect(w, r, to.String(), http.StatusSeeOther) //nolint:gosec // has no host, and one slash at its start
}

func trimSlashes(path string) string {
	for path != "" && (path[0] == '/' || path[0] == '\\') {
		path = path[1:]
	}

	return path
}

func (s *Server) getSession(w http.ResponseWriter, r *http.Request) {
	login, r, failure := s.authenticate(r)
	if failure != nil && FailureOf(failure).Status != http.StatusUnauthorized {
		sendFailure(w, failure)
		return
	}

	end, err := s.places.startWork(accountOf(login.person))
	if err != nil {
		sendFailure(w, err)
		return
	}
	defer end()

	if err := sendValue(w, r, s.describe(r, login, failure == nil)); err != nil {
		sendFailure(w, err)
	}
}

func sendValue(w http.ResponseWriter, r *http.Request, value any) error {
	body, err := encode(value)
	if err != nil {
		return err
	}

	body.send(w, r)
	return nil
}

// getWorklist returns the rows of all requested clusters. It is encoded once for all requests, until a cluster's rows change.
func (s *Server) getWorklist(r *http.Request) (any, error) {
	var backends []Backend
	for _, name := range r.URL.Query()["cluster"] {
		b, err := s.backends.named(name)
		if err != nil {
			return nil, err
		}

		if !slices.Contains(backends, b) {
			backends = append(backends, b)
		}
	}

	if len(backends) == 0 {
		backends = s.backends
	}

	var parts []*contract.Worklist
	var problems []contract.ClusterProblem
	var first error
	for _, b := range backends {
		part, err := b.Worklist(r.Context())
		if err != nil {
			first = cmp.Or(first, err)
			problems = append(problems, contract.ClusterProblem{Cluster: b.Name(), Error: FailureOf(err).Body})
			continue
		}

		parts = append(parts, part)
	}

	if len(parts) == 0 {
		return nil, first
	}

	// A partial answer is not cached, so that a cluster is back as soon as it responds.
	if len(problems) > 0 {
		out := mergeWorklists(parts)
		out.Problems = problems
		return out, nil
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	if i := slices.IndexFunc(s.worklists, func(e encodedWorklist) bool { return slices.Equal(parts, e.parts) }); i >= 0 {
		return s.worklists[i].body, nil
	}

	body, err := encode(mergeWorklists(parts))
	if err != nil {
		return nil, err
	}

	s.worklists = append(s.worklists, encodedWorklist{parts, body})
	s.worklists = s.worklists[max(0, len(s.worklists)-maxEncoded):]
	return body, nil
}

func seriesRange(r *http.Request, now time.Time) (SeriesRange, error) {
	var out SeriesRange
	var err error
	if out.From, err = timeParameter(r, "from", now.Add(-14*24*time.Hour)); err != nil {
		return out, err
	}

	if out.To, err = timeParameter(r, "to", now); err != nil {
		return out, err
	}

	points, err := numberParameter(r, "points", minPoints, maxPoints)
	if err != nil {
		return out, err
	}

	// Each chart has a fixed number of points, whatever the range.
	out.Points = defaultPoints
	if points != nil {
		out.Points = int(*points)
	}

	if length := out.To.Sub(out.From); length < time.Minute || length > maxRange {
		return out, invalid("the time range must be between 1m and %s", units.FormatDuration(maxRange))
	}

	return out, nil
}

func timeParameter(r *http.Request, name string, otherwise time.Time) (time.Time, error) {
	const latest = 1 << 36
	v, err := numberParameter(r, name, 0, latest)
	if err != nil || v == nil {
		return otherwise, err
	}

	return time.Unix(int64(*v), 0), nil
}

// numberParameter returns a number of the query within bounds; nil if it is absent.
func numberParameter(r *http.Request, name string, lowest, highest float64) (*float64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return nil, nil //nolint:nilnil // absent
	}

	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || v < lowest || v > highest {
		return nil, invalid("%s: %q is not a number from %v to %v", name, text, lowest, highest)
	}

	return &v, nil
}

func whatIfSettings(r *http.Request) (contract.WhatIfSettings, error) {
	var out contract.WhatIfSettings
	for _, p := range []struct {
		name            string
		lowest, highest float64
		value           **float64
	}{
		{"cpuPercentile", 0.5, 1, &out.CPUPercentile},
		{"memoryPercentile", 0.5, 1, &out.MemoryPercentile},
		{"cpuMargin", 0, 2, &out.CPUMargin},
		{"memoryMargin", 0, 2, &out.MemoryMargin},
		{"target", 0.0025, 0.5, &out.Target},
	} {
		v, err := numberParameter(r, p.name, p.lowest, p.highest)
		if err != nil {
			return out, err
		}

		*p.value = v
	}

	return out, nil
}

// askNamed returns the answer of a backend about the object whose namespace and name are in the parameters; parameter is that of the name.
func askNamed[T any](s *Server, parameter, missing string, read func(b Backend, ctx context.Context, namespace, name string) (T, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		b, err := s.backends.of(r)
		if err != nil {
			return nil, err
		}

		q := r.URL.Query()
		if q.Get("namespace") == "" || q.Get(parameter) == "" {
			return nil, invalid("%s", missing)
		}

		if err := checkNames(q.Get("namespace"), q.Get(parameter)); err != nil {
			return nil, err
		}

		return read(b, r.Context(), q.Get("namespace"), q.Get(parameter))
	}
}

// costWindows are few, because each is read for all viewers together and takes long.
func costWindows() []time.Duration {
	const day = 24 * time.Hour
	return []time.Duration{time.Hour, day, 7 * day, 14 * day}
}

func (s *Server) getCost(r *http.Request) (any, error) {
	b, err := s.backends.of(r)
	if err != nil {
		return nil, err
	}

	q := r.URL.Query()
	query := CostQuery{By: cmp.Or(q.Get("by"), "namespace"), Label: q.Get("label"), Window: time.Hour}
	if text := q.Get("window"); text != "" {
		if query.Window, err = units.ParseDuration(text); err != nil || !slices.Contains(costWindows(), query.Window) {
			return nil, invalid("window: %q must be 1h, 1d, 7d or 14d", text)
		}
	}

	if query.By == "label" && query.Label == "" {
		return nil, invalid("label: the key of a label is required")
	}

	if err := checkNames(query.Label); err != nil {
		return nil, err
	}

	return b.Cost(r.Context(), query)
}
