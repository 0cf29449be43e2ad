// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package measure is what benchmarks of processes against an API server read: what was written, and what a process has taken. It
// judges nothing.
package measure

import (
	"bufio"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// Writes counts the writing requests that the API server has had, by resource and subresource, leases left out.
func Writes(ctx context.Context, api rest.Interface) (map[string]int64, error) {
	page, err := api.Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, err
	}

	out := map[string]int64{}
	lines := bufio.NewScanner(strings.NewReader(string(page)))
	lines.Buffer(nil, 1<<20)

	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, "apiserver_request_total{") {
			continue
		}

		verb := label(line, "verb")
		resource := label(line, "resource")

		switch verb {
		case "POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION":
		default:
			continue
		}

		// What the API server and its authorization do for themselves is not craned's.
		if resource == "leases" || resource == "tokenreviews" || resource == "subjectaccessreviews" || resource == "serviceaccounts" {
			continue
		}

		if sub := label(line, "subresource"); sub != "" {
			resource += "/" + sub
		}

		value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return nil, err
		}

		out[verb+" "+resource] += int64(value)
	}

	return out, lines.Err()
}

// ServerCPU is the CPU time that the API server has taken, the store in its process included.
func ServerCPU(ctx context.Context, api rest.Interface) (time.Duration, error) {
	page, err := api.Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, err
	}

	for line := range strings.Lines(string(page)) {
		if value, found := strings.CutPrefix(line, "process_cpu_seconds_total "); found {
			seconds, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return time.Duration(seconds * float64(time.Second)), err
		}
	}

	return 0, errors.New("the API server does not say what CPU it has taken")
}

// label reads a label of a line of metrics; empty where there is none.
func label(line, name string) string {
	for _, before := range []string{"{", ","} {
		if _, rest, found := strings.Cut(line, before+name+`="`); found {
			value, _, _ := strings.Cut(rest, `"`)
			return value
		}
	}

	return ""
}
