// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package csv

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"crane.io/crane/internal/metrics"
)

// TestDir checks that files are the history of the containers in their names, and that files with other names are skipped.
func TestDir(t *testing.T) {
	path := t.TempDir()
	for name, text := range map[string]string{
		"shop_Deployment_web_app_cpu.csv":    "ts,value\n0,0.5\n60,0.7\n",
		"shop_Deployment_web_app_memory.csv": "ts,value\n0,100\n",
		"bank_StatefulSet_db_pg_cpu.csv":     "ts,value\n0,1\n",
		"bank_StatefulSet_db_pg_gpu.csv":     "ts,value\n0,1\n",
		"notes.csv":                          "ts,value\n0,1\n",
		"a_b_c_d_cpu.txt":                    "ts,value\n0,1\n",
		"x_Deployment_y_z_cpu.csv":           "name,price\n",
	} {
		if err := os.WriteFile(filepath.Join(path, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	dir, err := OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}

	read := func(req metrics.UsageRequest) string {
		var got []string
		for c, err := range dir.Usage(t.Context(), req) {
			if err != nil {
				t.Fatal(err)
			}

			got = append(got, fmt.Sprint(c.Key.Workload, "/", c.Key.Pod, "/", c.Key.Container, c.Series.Values))
		}

		slices.Sort(got)
		return strings.Join(got, " ")
	}

	for want, req := range map[string]metrics.UsageRequest{
		"bank/StatefulSet/db/db/pg[1] shop/Deployment/web/web/app[0.5 0.7]": {Resource: metrics.CPU},
		"shop/Deployment/web/web/app[0.5 0.7]":                              {Resource: metrics.CPU, Namespaces: []string{"shop"}},
		"shop/Deployment/web/web/app[0.7]":                                  {Resource: metrics.CPU, Namespaces: []string{"shop"}, Start: time.Unix(60, 0)},
		"shop/Deployment/web/web/app[100]":                                  {Resource: metrics.Memory},
		"":                                                                  {Resource: metrics.CPU, Namespaces: []string{"elsewhere"}},
	} {
		if got := read(req); got != want {
			t.Errorf("Usage(%+v) = %q, want %q", req, got, want)
		}
	}

	if err := dir.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(path, "shop_Deployment_bad_app_cpu.csv"), []byte("ts,value\n0,0.5\nnonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	var failure error
	for _, failure = range dir.Usage(t.Context(), metrics.UsageRequest{Resource: metrics.CPU}) {
	}

	if failure == nil {
		t.Error("Usage with an invalid row in a file: no error, want one")
	}
	if _, err := OpenDir(filepath.Join(path, "none")); err == nil {
		t.Error("OpenDir of a missing directory: no error, want one")
	}
	if _, err := OpenDir(filepath.Join(path, "notes.csv")); err == nil {
		t.Error("OpenDir of a file: no error, want one")
	}
}

// TestErrorsNameNoPath checks that errors for readers of a namespace name neither the directory nor a file.
func TestErrorsNameNoPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret-place")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}

	dir, err := OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}

	check := func(want string) {
		t.Helper()

		var failure error
		for _, failure = range dir.Usage(t.Context(), metrics.UsageRequest{Resource: metrics.CPU}) {
		}

		if failure == nil || metrics.PublicMessage(failure) != want || !strings.Contains(failure.Error(), path) {
			t.Errorf("Usage: error %v with public message %q, want message %q and an error with the path", failure, metrics.PublicMessage(failure), want)
		}
	}

	if err := os.WriteFile(filepath.Join(path, "bank_Deployment_bad_app_cpu.csv"), []byte("ts,value\n0,0.5\nnonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	check("a file of data source csv cannot be read")
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}

	check("the directory of data source csv cannot be read")
}
