// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricstore

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/test/integration/harness"
)

// Thanos runs an installation of Thanos with a history until the test ends and returns the URL of its querier, and a function that stops
// the store gateway. The newer half of the history is read from Prometheus through a sidecar, the older half through a store gateway from the
// bucket to which the sidecar uploaded it. The querier removes the label of the replica, as for a pair of Prometheus servers.
func Thanos(t testing.TB, grid promserver.Grid, series []promserver.Series) (url string, stopGateway func()) {
	t.Helper()

	program := Program(t, "thanos")
	data := writeBlocks(t, grid, series)
	bucket := t.TempDir()
	middle := grid.Start.Add(grid.End.Sub(grid.Start) / 2).UTC().Format(time.RFC3339)

	// A sidecar that uploads requires that Prometheus does not compact.
	prometheus := Prometheus(t, data, "global: {external_labels: {replica: a}}\n", "--storage.tsdb.min-block-duration=2h", "--storage.tsdb.max-block-duration=2h")
	object := fmt.Sprintf("--objstore.config={type: FILESYSTEM, config: {directory: %q}}", bucket)

	component := func(name string, flags ...string) (http, grpc string, stop func()) {
		http = harness.FreeAddress(t)
		grpc = harness.FreeAddress(t)
		stop = start(t, program, append([]string{name, "--http-address=" + http, "--grpc-address=" + grpc, "--http-grace-period=1s", "--grpc-grace-period=1s"}, flags...)...)
		await(t, "http://"+http+"/-/ready", "")

		return http, grpc, stop
	}

	_, sidecar, _ := component("sidecar", object, "--prometheus.url="+prometheus, "--tsdb.path="+data, "--shipper.upload-compacted", "--min-time="+middle)
	harness.Eventually(t.Context(), t, startTimeout, "upload of all blocks", func(context.Context) error {
		want := blocks(t, data)
		got := blocks(t, bucket)
		if want == 0 || got != want {
			return fmt.Errorf("%d of %d", got, want)
		}

		return nil
	})

	_, gateway, stopGateway := component("store", object, "--data-dir="+t.TempDir(), "--max-time="+middle)
	querier, _, _ := component("query", "--endpoint="+sidecar, "--endpoint="+gateway, "--query.replica-label=replica")
	await(t, "http://"+querier+"/api/v1/stores", sidecar)
	await(t, "http://"+querier+"/api/v1/stores", gateway)

	return "http://" + querier, stopGateway
}

// ThanosQuerier is Thanos as a Start.
func ThanosQuerier(t testing.TB, grid promserver.Grid, series []promserver.Series) string {
	t.Helper()
	url, _ := Thanos(t, grid, series)
	return url
}

var _ Start = ThanosQuerier

// blocks returns the number of blocks in a directory.
func blocks(t testing.TB, dir string) int {
	t.Helper()

	found, err := filepath.Glob(filepath.Join(dir, "*", "meta.json"))
	if err != nil {
		t.Fatal(err)
	}

	return len(found)
}
