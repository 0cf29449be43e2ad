// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricstore

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/test/integration/harness"
)

const (
	// TenantHeader is the header that names the tenant. Requests without it are refused.
	TenantHeader = "X-Scope-OrgID"
	// Tenant is the tenant of Mimir that has the history.
	Tenant = "team-a"
	// TenantFlag is the flag of Crane's programs for both.
	TenantFlag = "--prometheus-header=" + TenantHeader + ": " + Tenant
)

// mimirConfiguration is that of one process with all components, which keep their rings in memory. %[1]s is a directory, %[2]s and %[3]s are
// ports. Blocks are read from the bucket at any age, because the ingesters are empty.
const mimirConfiguration = `
multitenancy_enabled: true
server: {http_listen_address: 127.0.0.1, http_listen_port: %[2]s, grpc_listen_address: 127.0.0.1, grpc_listen_port: %[3]s}
common: {storage: {backend: filesystem, filesystem: {dir: %[1]s/common}}}
blocks_storage:
  backend: filesystem
  filesystem: {dir: %[1]s/bucket}
  tsdb: {dir: %[1]s/tsdb}
  bucket_store: {sync_dir: %[1]s/sync, sync_interval: 1s, ignore_blocks_within: 0s}
compactor: {data_dir: %[1]s/compactor, sharding_ring: {instance_addr: 127.0.0.1, kvstore: {store: inmemory}}}
distributor: {ring: {instance_addr: 127.0.0.1, kvstore: {store: inmemory}}}
ingester: {ring: {instance_addr: 127.0.0.1, replication_factor: 1, kvstore: {store: inmemory}}}
store_gateway: {sharding_ring: {instance_addr: 127.0.0.1, replication_factor: 1, kvstore: {store: inmemory}}}
frontend: {address: 127.0.0.1}
querier: {query_store_after: 0s}
ruler: {rule_path: %[1]s/rules, ring: {instance_addr: 127.0.0.1, kvstore: {store: inmemory}}}
activity_tracker: {filepath: %[1]s/activity.log}
usage_stats: {enabled: false}
`

// Mimir runs a Mimir of one process with the history of a tenant in its bucket until the test ends and returns the URL of its Prometheus API.
func Mimir(t testing.TB, grid promserver.Grid, series []promserver.Series) string {
	t.Helper()

	program := Program(t, "mimir")
	dir := t.TempDir()

	bucket := filepath.Join(dir, "bucket", Tenant)
	if err := os.CopyFS(bucket, os.DirFS(writeBlocks(t, grid, series))); err != nil {
		t.Fatal(err)
	}

	_, httpPort, _ := net.SplitHostPort(harness.FreeAddress(t))
	_, grpcPort, _ := net.SplitHostPort(harness.FreeAddress(t))
	file := filepath.Join(dir, "mimir.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, mimirConfiguration, dir, httpPort, grpcPort), 0o600); err != nil {
		t.Fatal(err)
	}

	start(t, program, "-config.file="+file, "-target=all")
	address := "http://127.0.0.1:" + httpPort
	await(t, address+"/ready", "ready")
	awaitMimirSeries(t, address+"/prometheus", bucket, grid, len(series))

	return address + "/prometheus"
}

var _ Start = Mimir

// awaitMimirSeries waits until queries see all series of the bucket: a Mimir that is ready may not have read the blocks yet, and then answers
// without them and without an error. It queries after the compactor has written the index of the bucket, as the querier remembers for a
// minute that there is none.
func awaitMimirSeries(t testing.TB, api, bucket string, grid promserver.Grid, want int) {
	t.Helper()

	query := url.Values{"match[]": {`{__name__!=""}`}, "start": {fmt.Sprint(grid.Start.Unix())}, "end": {fmt.Sprint(grid.End.Unix())}}
	harness.Eventually(t.Context(), t, startTimeout, "series of Mimir", func(ctx context.Context) error {
		if _, err := os.Stat(filepath.Join(bucket, "bucket-index.json.gz")); err != nil {
			return err
		}

		request, err := http.NewRequestWithContext(ctx, http.MethodGet, api+"/api/v1/series?"+query.Encode(), http.NoBody)
		if err != nil {
			return err
		}

		request.Header.Set(TenantHeader, Tenant)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()

		var answer struct {
			Data  []json.RawMessage
			Error string
		}

		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
			return err
		}

		if len(answer.Data) != want {
			return fmt.Errorf("%d of %d, %s %s", len(answer.Data), want, response.Status, answer.Error)
		}

		return nil
	})
}
