// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package grpc

import (
	"math"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"crane.io/crane/internal/metrics/grpc/datasourcepb"
)

// appendText and appendMessage encode fields like gocrane's servers and clients.
func appendText(b []byte, number protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), text)
}

func appendMessage(b []byte, number protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), message)
}

func appendInt(b []byte, number protowire.Number, n int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), uint64(n))
}

func join(parts ...[]byte) (out []byte) {
	for _, p := range parts {
		out = append(out, p...)
	}

	return out
}

// TestRequestOnTheWire checks the numbers of all fields of requests.
func TestRequestOnTheWire(t *testing.T) {
	container := appendText(appendText(appendText(appendText(appendText(nil, 1, "ns"), 2, "Deployment"), 3, "web"), 4, "apps/v1"), 5, "app")
	workload := appendText(appendText(appendText(appendText(nil, 1, "ns"), 2, "StatefulSet"), 3, "db"), 4, "apps/v1")

	pod := appendText(appendText(nil, 1, "ns"), 2, "web-1")
	node := appendText(nil, 1, "n1")
	window := appendInt(appendInt(appendInt(nil, 2, -1), 3, 1_700_086_400), 4, 60)
	for name, c := range map[string]struct {
		info   *datasourcepb.Metric
		number protowire.Number
		want   []byte
	}{
		"container": {&datasourcepb.Metric{Info: &datasourcepb.Metric_Container{Container: &datasourcepb.Container{
			Namespace: "ns", WorkloadKind: "Deployment", WorkloadName: "web", ApiVersion: "apps/v1", Name: "app",
		}}}, 2, container},
		"pod":  {&datasourcepb.Metric{Info: &datasourcepb.Metric_Pod{Pod: &datasourcepb.Pod{Namespace: "ns", Name: "web-1"}}}, 3, pod},
		"node": {&datasourcepb.Metric{Info: &datasourcepb.Metric_Node{Node: &datasourcepb.Node{Name: "n1"}}}, 4, node},
		"workload": {&datasourcepb.Metric{Info: &datasourcepb.Metric_Workload{Workload: &datasourcepb.Workload{
			Namespace: "ns", Kind: "StatefulSet", Name: "db", ApiVersion: "apps/v1",
		}}}, 5, workload},
	} {
		c.info.MetricName = "cpu"
		metric := appendMessage(nil, 1, appendMessage(appendText(nil, 1, "cpu"), c.number, c.want))
		var history datasourcepb.QueryTimeSeriesRequest
		if err := proto.Unmarshal(join(metric, window), &history); err != nil {
			t.Fatal(err)
		}

		if want := (&datasourcepb.QueryTimeSeriesRequest{Metric: c.info, StartTime: -1, EndTime: 1_700_086_400, Step: 60}); !proto.Equal(&history, want) {
			t.Errorf("%s: request %v, want %v", name, &history, want)
		}

		data, err := limitingCodec{}.Marshal(&datasourcepb.QueryLatestTimeSeriesRequest{Metric: c.info})
		if err != nil || string(data) != string(metric) {
			t.Errorf("%s: Marshal = %x, %v, want %x", name, data, err, metric)
		}
	}

	if _, err := (limitingCodec{}).Marshal("text"); err == nil {
		t.Error("Marshal of a string: no error, want one")
	}
	if err := (limitingCodec{}).Unmarshal(nil, "text"); err == nil {
		t.Error("Unmarshal into a string: no error, want one")
	}
}

// TestResponseOnTheWire checks the numbers of all fields of responses.
func TestResponseOnTheWire(t *testing.T) {
	label := appendText(appendText(nil, 1, "pod"), 2, "web-1")
	sample := protowire.AppendFixed64(protowire.AppendTag(appendInt(nil, 1, -5), 2, protowire.Fixed64Type), math.Float64bits(-1.5))
	data := join(
		appendMessage(nil, 1, join(appendMessage(nil, 1, label), appendMessage(nil, 2, sample), appendInt(nil, 99, 1))),
		appendMessage(nil, 1, nil), appendInt(nil, 98, 1),
	)

	var got datasourcepb.QueryTimeSeriesResponse
	if err := (limitingCodec{}).Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}

	list := got.GetTimeSeriesList()
	if len(list) != 2 || len(list[0].GetLabels()) != 1 || len(list[0].GetSamples()) != 1 || len(list[1].GetSamples()) != 0 {
		t.Fatalf("Unmarshal = %v, want 2 series, the first with a label and a sample, the second without samples", &got)
	}

	if l, s := list[0].GetLabels()[0], list[0].GetSamples()[0]; l.GetName() != "pod" || l.GetValue() != "web-1" || s.GetTimestamp() != -5 || s.GetValue() != -1.5 {
		t.Errorf("Unmarshal = %v, want label pod=web-1 and value -1.5 at -5", &got)
	}
}

// TestLimits checks that invalid messages and responses with too many elements are rejected.
func TestLimits(t *testing.T) {
	repeat := func(n int, part []byte) (out []byte) {
		for range n {
			out = append(out, part...)
		}

		return out
	}

	emptySeries := appendMessage(nil, 1, nil)
	for name, data := range map[string][]byte{
		"truncated":          appendMessage(nil, 1, make([]byte, 20))[:10],
		"more than all bits": {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
		"too many series":    repeat(maxSeries+1, emptySeries),
		"too many labels":    appendMessage(nil, 1, repeat(maxLabels+1, appendMessage(nil, 1, nil))),
		"too many samples":   appendMessage(nil, 1, repeat(maxSamples+1, appendMessage(nil, 2, nil))),
	} {
		if err := (limitingCodec{}).Unmarshal(data, &datasourcepb.QueryTimeSeriesResponse{}); err == nil {
			t.Errorf("Unmarshal of %s: no error, want one", name)
		}
	}

	allowed := join(repeat(maxSeries-1, emptySeries), appendMessage(nil, 1, repeat(maxLabels, appendMessage(nil, 1, nil))))
	if err := (limitingCodec{}).Unmarshal(allowed, &datasourcepb.QueryTimeSeriesResponse{}); err != nil {
		t.Error(err)
	}
}

// FuzzResponse checks that no input causes a panic or exceeds the limits.
func FuzzResponse(f *testing.F) {
	f.Add([]byte{0x0a, 0x02, 0x12, 0x00})
	f.Add([]byte{0x0a, 0x05, 0x12, 0x03, 0x08, 0x01, 0x11})
	f.Fuzz(func(t *testing.T, data []byte) {
		var r datasourcepb.QueryTimeSeriesResponse
		if err := (limitingCodec{}).Unmarshal(data, &r); err == nil && len(r.GetTimeSeriesList()) > maxSeries {
			t.Errorf("Unmarshal accepted %d series, want at most %d", len(r.GetTimeSeriesList()), maxSeries)
		}
	})
}
