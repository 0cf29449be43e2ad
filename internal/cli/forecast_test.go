// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"crane.io/crane/internal/metrics"
)

func TestForecastTable(t *testing.T) {
	dir := t.TempDir()
	writeSeries(t, dir, "web.csv", 10)
	writeSeries(t, dir, "young.csv", 1)

	code, out, errOut := runCrane(t, "forecast", dir)
	if code != exitOK {
		t.Fatalf("forecast: exit %d, want %d: %s", code, exitOK, errOut)
	}

	for _, want := range []string{"web\nmodel auto", "season 1d, 10 in the history", "skill 0.9", " over 7 origins", "FROM", "P99", "2026-03-12 23:00", "young\nmodel", "skill unknown", "reason: "} {
		if !strings.Contains(out, want) {
			t.Errorf("the table lacks %q:\n%s", want, out)
		}
	}
}

func TestForecastJSON(t *testing.T) {
	path := writeSeries(t, t.TempDir(), "web.csv", 10)
	code, out, errOut := runCrane(t, "forecast", "--history", "3d", "--horizon", "6h", "--algorithm", "plain", "-o", "json", path)
	if code != exitOK {
		t.Fatalf("forecast -o json: exit %d, want %d: %s", code, exitOK, errOut)
	}

	var got struct{ Series []jsonForecast }
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}

	s := got.Series[0]
	if s.Name != "web" || s.Algorithm != "plain" || s.Step != 300 || len(s.History.Values) != 3*288 || len(s.Quantiles) != 4 {
		t.Errorf("%s by %s, step %v, %d samples of history, %d quantiles, want web by plain, 300, %d and 4", s.Name, s.Algorithm, s.Step, len(s.History.Values), len(s.Quantiles), 3*288)
	}

	for _, level := range []string{"0.5", "0.9", "0.95", "0.99"} {
		if len(s.Quantiles[level]) != 72 {
			t.Errorf("%d steps of quantile %s, want 72", len(s.Quantiles[level]), level)
		}
	}
}

func TestForecastChartWidth(t *testing.T) {
	path := writeSeries(t, t.TempDir(), "web.csv", 10)
	for _, width := range []int{minChartWidth, 100, 173} {
		code, out, errOut := runCrane(t, "forecast", "-o", "chart", "--width", fmt.Sprint(width), path)
		if code != exitOK {
			t.Fatalf("forecast -o chart: exit %d, want %d: %s", code, exitOK, errOut)
		}

		_, plot, found := strings.Cut(out, "\n") // The name.
		_, plot, found2 := strings.Cut(plot, "\n")
		if !found || !found2 {
			t.Fatalf("forecast -o chart has no plot, want one:\n%s", out)
		}

		widest := 0
		for line := range strings.Lines(plot) {
			if strings.HasPrefix(line, "█ history") {
				continue
			}

			widest = max(widest, utf8.RuneCountInString(strings.TrimRight(line, "\n")))
		}

		if widest != width {
			t.Errorf("the chart is %d wide, want %d:\n%s", widest, width, out)
		}

		for _, mark := range []string{"█", "━", "┴", "1.5 │", "0 │"} {
			if !strings.Contains(plot, mark) {
				t.Errorf("the chart lacks %q, want it:\n%s", mark, out)
			}
		}
	}
}

func TestForecastSVGIsXML(t *testing.T) {
	dir := t.TempDir()
	writeSeries(t, dir, "a <b> & c.csv", 10)
	writeSeries(t, dir, "zero.csv", 2)

	if err := os.WriteFile(filepath.Join(dir, "flat.csv"), []byte("ts,value\n0,0\n60,0\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	code, out, errOut := runCrane(t, "forecast", "-o", "svg", dir)
	if code != exitOK {
		t.Fatalf("forecast -o svg: exit %d, want %d: %s", code, exitOK, errOut)
	}

	elements := map[string]int{}
	for d := xml.NewDecoder(strings.NewReader(out)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}

		if start, ok := token.(xml.StartElement); ok {
			elements[start.Name.Local]++
		}
	}

	if elements["g"] != 3 || elements["polygon"] != 9 || elements["polyline"] != 3 || !strings.Contains(out, "a &lt;b&gt; &amp; c") {
		t.Errorf("elements of the SVG = %v, want 3 groups, 9 bands, 3 lines and escaped names", elements)
	}

	for _, bad := range []string{"NaN", "Inf"} {
		if strings.Contains(out, bad) {
			t.Errorf("the chart contains %s, want no markup of names", bad)
		}
	}
}

func TestForecastFromQuery(t *testing.T) {
	query := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}

		query = r.Form.Get("query") + " step " + r.Form.Get("step")
		end := r.Form.Get("end")
		_, _ = fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"use","pod":"a"},"values":[[%s,"2.5"]]}]}}`, end)
	}))
	defer server.Close()

	code, out, errOut := runCrane(t, "forecast", "--prometheus", server.URL, "--query", "use", "--history", "1h", "--horizon", "1h", "--step", "5m")
	if code != exitOK || !strings.Contains(out, `use{pod="a"}`) || !strings.Contains(out, "2.5") || query != "use step 300" {
		t.Errorf("forecast --query: exit %d, query %q, want %d, the labels of the series and a step of 300\n%s%s", code, query, exitOK, out, errOut)
	}
}

func TestForecastErrors(t *testing.T) {
	path := writeSeries(t, t.TempDir(), "web.csv", 2)
	empty := filepath.Join(t.TempDir(), "empty.csv")
	if err := os.WriteFile(empty, []byte("ts,value\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"nothing":     {nil, exitUsage, "want files or directories"},
		"both":        {[]string{"--query", "up", path}, exitUsage, "mutually exclusive"},
		"no server":   {[]string{"--query", "up"}, exitUsage, "--query requires --prometheus"},
		"algorithm":   {[]string{"--algorithm", "best", path}, exitUsage, `unknown algorithm "best"`},
		"horizon":     {[]string{"--horizon", "soon", path}, exitUsage, "--horizon"},
		"history":     {[]string{"--history", "0s", path}, exitUsage, "--history"},
		"output":      {[]string{"-o", "png", path}, exitUsage, `"png"`},
		"width":       {[]string{"--width", "7", path}, exitUsage, "--width 7"},
		"too many":    {[]string{"--prometheus", "http://localhost:1", "--query", "up", "--history", "100d", "--step", "1s"}, exitUsage, "more than"},
		"no sample":   {[]string{empty}, exitNoResult, "nothing to forecast"},
		"no file":     {[]string{path + ".none"}, exitFailure, "web.csv.none"},
		"far horizon": {[]string{"--horizon", "100000d", path}, exitUsage, "--horizon"},
	} {
		code, _, errOut := runCrane(t, append([]string{"forecast"}, c.args...)...)
		if code != c.code || !strings.Contains(errOut, c.want) {
			t.Errorf("%s: exit %d, %q; want %d and %q", name, code, errOut, c.code, c.want)
		}
	}
}

func TestSeriesName(t *testing.T) {
	const query = "sum(\n  rate(http_requests_total[5m]))"
	for want, labels := range map[string]metrics.Labels{
		"sum( rate(http_requests_total[5m]))": {},
		"http_requests_total":                 {"__name__": "http_requests_total"},
		`{a="1", pod="x"}`:                    {"pod": "x", "a": "1"},
		`up{job="node"}`:                      {"__name__": "up", "job": "node"},
	} {
		if got := seriesName(labels, query); got != want {
			t.Errorf("seriesName(%v) = %s, want %s", labels, got, want)
		}
	}
}
