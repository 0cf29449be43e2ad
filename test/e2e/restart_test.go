// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestInterruptedStart: Ctrl-C at any time of the start stops everything and removes the temporary directory.
func TestInterruptedStart(t *testing.T) {
	for _, moment := range []string{"", "Kubernetes serves", "nodes of", "workloads in", "pods run", "Prometheus serves"} {
		t.Run("at "+moment, func(t *testing.T) {
			s := launchTemporary(t, "--nodes", "2", "--workloads", "6", "--days", "2")
			eventually(t, moment, func() error {
				if !strings.Contains(s.output(), moment) {
					return errors.New(s.output())
				}

				return nil
			})

			if moment == "" {
				s.end(t, syscall.SIGINT) // the signal may end the process before it has a handler
				s.checkGone(t)
			} else {
				s.interrupt(t)
			}

			if entries, err := os.ReadDir(s.state); err != nil || len(entries) > 0 {
				t.Errorf("left in the temporary directory: %v, %v, want nothing", entries, err)
			}
		})
	}
}

// TestHangUp: SIGHUP stops the playground like Ctrl-C.
func TestHangUp(t *testing.T) {
	s := launchTemporary(t, "--nodes", "1", "--workloads", "2", "--days", "1", "--only", "prometheus")
	eventually(t, "ready", func() error {
		if !strings.Contains(s.output(), "Ctrl-C") {
			return errors.New(s.output())
		}

		return nil
	})

	s.end(t, syscall.SIGHUP)
	s.checkGone(t)

	if entries, err := os.ReadDir(s.state); err != nil || len(entries) > 0 || s.err != nil {
		t.Errorf("the playground ended with %v, want no error; left in the temporary directory: %v, %v, want nothing", s.err, entries, err)
	}
}

// TestStateSurvives kills a playground and starts another one on its state directory.
func TestStateSurvives(t *testing.T) {
	args := []string{"--nodes", "2", "--workloads", "8", "--days", "3", "--speed", "48"}
	s := start(t, args...)
	before := s.objects(t)
	s.end(t, syscall.SIGKILL)
	s.checkGone(t)

	again := startIn(t, s.state, args...)
	after := again.objects(t)
	for name, uid := range before {
		if after[name] != uid {
			t.Errorf("%s has UID %q, want %s as before", name, after[name], uid)
		}
	}

	if len(after) != len(before) {
		t.Errorf("%d objects after the restart, want %d as before", len(after), len(before))
	}

	checkHistory(t, again.prometheus)
	again.interrupt(t)
}

// objects returns the UIDs of workloads and recommendations by name.
func (s *session) objects(t *testing.T) map[string]string {
	t.Helper()

	out := s.kubectl(t, "get", "deployments,statefulsets,daemonsets,cronjobs,recommendations", "-A", "-o",
		`jsonpath={range .items[*]}{.kind}/{.metadata.namespace}/{.metadata.name} {.metadata.uid}{"\n"}{end}`)

	all := map[string]string{}
	for line := range strings.Lines(out) {
		name, uid, _ := strings.Cut(strings.TrimSpace(line), " ")
		all[name] = uid
	}

	if len(all) < 10 {
		t.Fatalf("the objects are %s, want 10 or more", out)
	}

	return all
}

// checkHistory checks that each container has a sample at every minute of the last two days, that counters do not jump,
// and that no pod is duplicated since the restart.
func checkHistory(t *testing.T, prometheus string) {
	t.Helper()

	end := time.Now().Truncate(time.Minute)
	const minutes, recent = 2 * 24 * 60, 15
	const pods = `container_cpu_usage_seconds_total{namespace!="analytics"}`
	for _, c := range []struct {
		query   string
		minutes int
		check   func(float64) bool
	}{
		{"min(count_over_time(" + pods + "[2m]))", minutes, func(v float64) bool { return v >= 1 }},
		{"max(max by (namespace, pod, container) (rate(" + pods + "[5m])))", minutes, func(v float64) bool { return v > 0 && v < 32 }},
		{"count(count by (node) (kube_node_info))", minutes, func(v float64) bool { return v == 2 }},
		{"max(count by (namespace, pod) (kube_pod_owner))", recent, func(v float64) bool { return v == 1 }},
	} {
		values := rangeOf(t, prometheus, c.query, end.Add(-time.Duration(c.minutes)*time.Minute), end)
		if len(values) != c.minutes+1 {
			t.Errorf("%s has %d values, want %d: there are gaps", c.query, len(values), c.minutes+1)
		}

		for at, v := range values {
			if !c.check(v) {
				t.Errorf("%s is %g at %s, want a value in its range", c.query, v, at.UTC())
				break
			}
		}
	}
}

// rangeOf queries one series at every minute.
func rangeOf(t *testing.T, prometheus, query string, from, to time.Time) map[time.Time]float64 {
	t.Helper()

	resp, err := http.PostForm(prometheus+"/api/v1/query_range", url.Values{
		"query": {query}, "step": {"60"}, "start": {strconv.FormatInt(from.Unix(), 10)}, "end": {strconv.FormatInt(to.Unix(), 10)},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()

	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}

	var a promAnswer
	if err := json.Unmarshal(body, &a); err != nil || len(a.Data.Result) != 1 {
		t.Fatalf("query %s: %v, %s, want one series", query, err, body)
	}

	values := map[time.Time]float64{}
	for _, sample := range a.Data.Result[0].Values {
		seconds, _ := sample[0].(float64)
		v, err := strconv.ParseFloat(fmt.Sprint(sample[1]), 64)
		if err != nil {
			t.Fatal(err)
		}

		values[time.Unix(int64(seconds), 0)] = v
	}

	return values
}
