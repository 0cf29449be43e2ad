// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os/exec"
	"time"
)

// victoriaMetricsStart bounds the start of VictoriaMetrics.
const victoriaMetricsStart = time.Minute

// VictoriaMetrics is a running process of the program victoria-metrics.
type VictoriaMetrics struct {
	// URL is the address of its HTTP API.
	URL string

	command *exec.Cmd
	log     bytes.Buffer
}

// StartVictoriaMetrics runs a program victoria-metrics with data in a directory and imports series. The caller stops it.
func StartVictoriaMetrics(ctx context.Context, program, dir, address string, grid Grid, series []Series, flags ...string) (*VictoriaMetrics, error) {
	s := &VictoriaMetrics{URL: "http://" + address}
	s.command = exec.CommandContext(context.WithoutCancel(ctx), program,
		append([]string{"-storageDataPath=" + dir, "-retentionPeriod=100y", "-httpListenAddr=" + address}, flags...)...)
	s.command.Stdout, s.command.Stderr = &s.log, &s.log
	if err := s.command.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", program, err)
	}
	err := s.fill(ctx, grid, series)
	if err != nil {
		err = errors.Join(err, s.Stop())
		return nil, fmt.Errorf("filling VictoriaMetrics: %w\n%s", err, s.log.String())
	}
	return s, nil
}

// Stop ends the process.
func (s *VictoriaMetrics) Stop() error {
	err := s.command.Process.Kill()
	_ = s.command.Wait() // The error reports the kill.
	return err
}

func (s *VictoriaMetrics) fill(ctx context.Context, grid Grid, series []Series) error {
	ctx, cancel := context.WithTimeout(ctx, victoriaMetricsStart)
	defer cancel()
	for s.request(ctx, http.MethodGet, "/health", nil) != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	for _, one := range series {
		line, err := importLine(grid, one)
		if err != nil {
			return err
		}
		if err := s.request(ctx, http.MethodPost, "/api/v1/import", line); err != nil {
			return err
		}
	}
	return s.request(ctx, http.MethodGet, "/internal/force_flush", nil) // Samples are searchable after a flush.
}

func (s *VictoriaMetrics) request(ctx context.Context, method, path string, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, method, s.URL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		return fmt.Errorf("%s: %s", path, response.Status)
	}
	return nil
}

// importLine returns a series in the import format of VictoriaMetrics.
func importLine(grid Grid, series Series) ([]byte, error) {
	values := make([]float64, grid.Len())
	series.Fill(values, 0)
	line := struct {
		Metric     map[string]string `json:"metric"`
		Values     []float64         `json:"values"`
		Timestamps []int64           `json:"timestamps"`
	}{Metric: series.Labels.Map()}
	for i, v := range values {
		if !math.IsNaN(v) {
			line.Values = append(line.Values, v)
			line.Timestamps = append(line.Timestamps, grid.time(i).UnixMilli())
		}
	}
	return json.Marshal(line)
}
