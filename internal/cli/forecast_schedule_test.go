// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestForecastSchedule(t *testing.T) {
	path := writeSeries(t, t.TempDir(), "web.csv", 10)
	code, out, errOut := runCrane(t, "forecast", "schedule", "--request", "4", path)
	if code != exitOK {
		t.Fatalf("exit %d: %s", code, errOut)
	}

	for _, want := range []string{"web\nplan: ", "FROM (UTC)", "down from 4 by the most that one step gives up", "up at once from", "reaction: if two samples", "2 minutes after", "at most 6 times a day"} {
		if !strings.Contains(out, want) {
			t.Errorf("the schedule lacks %q:\n%s", want, out)
		}
	}

	code, out, errOut = runCrane(t, "forecast", "schedule", "-o", "json", path)
	if code != exitOK {
		t.Fatalf("exit %d: %s", code, errOut)
	}

	var got struct{ Series []jsonSchedule }
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Series) != 1 {
		t.Fatalf("%v in %s", err, out)
	}

	s := got.Series[0]
	if s.Changes < 1 || s.Changes > 8 || len(s.Steps) < 2 || s.Reaction.DelaySeconds != 120 || s.Reaction.MostADay != 6 {
		t.Errorf("%+v", s)
	}

	least := s.Steps[0].Request
	most := 0.0
	for i, step := range s.Steps {
		least = min(least, step.Request)
		most = max(most, step.Request)

		if step.To.Sub(step.From).Hours() < 1 || i > 0 && !step.From.Equal(s.Steps[i-1].To) || step.Reason == "" {
			t.Errorf("step %d: %+v", i, step)
		}
	}

	// The usage is a wave from 0.5 to 1.5.
	if least > 1 || most < 1.4 || most > 1.8 {
		t.Errorf("requests from %v to %v", least, most)
	}
}

func TestForecastScheduleFlags(t *testing.T) {
	path := writeSeries(t, t.TempDir(), "web.csv", 3)
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"nothing":         {nil, "want files or directories"},
		"chart":           {[]string{"-o", "chart", path}, "--output"},
		"no server":       {[]string{"--workload", "Deployment/shop/cart"}, "--prometheus"},
		"half a workload": {[]string{"--workload", "shop/cart", "--prometheus", "http://127.0.0.1:1"}, "KIND/NAMESPACE/NAME"},
		"two sources":     {[]string{"--workload", "Deployment/shop/cart", "--prometheus", "http://127.0.0.1:1", path}, "mutually exclusive"},
		"pods of a file":  {[]string{"--pods", "3", path}, "--pods"},
		"no pods":         {[]string{"--pods", "0", path}, "--pods"},
		"bad request":     {[]string{"--request", "-1", path}, "--request"},
	} {
		code, _, errOut := runCrane(t, append([]string{"forecast", "schedule"}, c.args...)...)
		if code != exitUsage || !strings.Contains(errOut, c.want) {
			t.Errorf("%s: exit %d, %q lacks %q", name, code, errOut, c.want)
		}
	}
}

// TestForecastScheduleForWorkload checks that the usage of a workload is divided among its pods.
func TestForecastScheduleForWorkload(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}

		if !strings.Contains(r.Form.Get("query"), "workload") {
			_, _ = fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
			return
		}

		_, _ = fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"workload":"cart"},"values":[[%s,"6"]]}]}}`, r.Form.Get("end"))
	}))
	defer server.Close()

	code, out, errOut := runCrane(t, "forecast", "schedule", "--prometheus", server.URL, "--workload", "Deployment/shop/cart", "--pods", "3", "--history", "1h")
	if code != exitOK || !strings.Contains(out, "Deployment/shop/cart, one of 3 pods") || !strings.Contains(out, "2.04 holds") {
		t.Errorf("exit %d\n%s%s", code, out, errOut)
	}
	if code, _, _ := runCrane(t, "forecast", "schedule", "--prometheus", server.URL, "--workload", "Deployment/shop/other", "--history", "1h"); code != exitNoResult {
		t.Errorf("exit %d for a workload without samples, want %d", code, exitNoResult)
	}
}
