// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// decoded is a response in a comparable form.
type decoded struct {
	Status, ErrorType, Error, ResultType string
	Warnings                             []string
	Plain                                bool
	Histograms                           int64
	Series                               []decodedSeries
}

type decodedSeries struct {
	Labels map[string]string
	Points []string
}

func (d *decoded) reset() { d.Series = nil }

func (d *decoded) add(labels []label, points []point) error {
	s := decodedSeries{Labels: map[string]string{}}
	for _, l := range labels {
		s.Labels[string(l.name)] = string(l.value)
	}

	for _, p := range points {
		s.Points = append(s.Points, fmt.Sprintf("%d %v", p.ms, p.value))
	}

	d.Series = append(d.Series, s)
	return nil
}

// discard drops all series.
type discard struct{}

func (discard) reset() {}

func (discard) add([]label, []point) error { return nil }

func decodeAll(r io.Reader) (decoded, error) {
	var out decoded
	d := &decoder{s: newScanner(r), limit: 1_000_000, sink: &out}
	err := d.decode()

	a := d.answer
	out.Status = a.status
	out.ErrorType = a.errorType
	out.Error = a.message
	out.ResultType = a.resultType
	out.Warnings = a.warnings
	out.Plain = a.plain
	out.Histograms = a.histograms

	return out, err
}

func TestDecode(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     decoded
	}{
		{
			"vector", `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"up","a":"b"},"value":[1.5,"2"]}]}}`,
			decoded{Status: "success", ResultType: "vector", Series: []decodedSeries{{map[string]string{"__name__": "up", "a": "b"}, []string{"1500 2"}}}},
		},
		{
			"matrix", `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"1"],[2.123,"NaN"],[1e3,"-Inf"],[-4,"0x1p-2"]]}]}}`,
			decoded{Status: "success", ResultType: "matrix", Series: []decodedSeries{{map[string]string{}, []string{"1000 1", "2123 NaN", "1000000 -Inf", "-4000 0.25"}}}},
		},
		{
			"keys in any order and spaces anywhere", " {\"data\" : { \"result\" : [ { \"values\" : [ [ 1 , \"1\" ] ] , \"metric\" : { \"a\" : \"b\" } } ] ,\n\"resultType\":\"matrix\"},\t\"status\":\"success\" } \r\n",
			decoded{Status: "success", ResultType: "matrix", Series: []decodedSeries{{map[string]string{"a": "b"}, []string{"1000 1"}}}},
		},
		{
			"escapes", `{"data":{"result":[{"metric":{"a\"\\\/\b\f\n\r\t":"\u00e9\ud83d\ude00\ud83dx\u0041"},"value":[1,"\u0031"]}]}}`,
			decoded{Series: []decodedSeries{{map[string]string{"a\"\\/\b\f\n\r\t": "é😀\ufffdxA"}, []string{"1000 1"}}}},
		},
		{"error", `{"status":"error","errorType":"bad_data","error":"no \"good\""}`, decoded{Status: "error", ErrorType: "bad_data", Error: `no "good"`}},
		{
			"warnings and unknown keys", `{"status":"success","isPartial":false,"infos":["i"],"stats":{"a":[1,{"b":null}]},"warnings":["w1","w2"],"data":{"result":[],"x":-1.5e3}}`,
			decoded{Status: "success", Warnings: []string{"w1", "w2"}},
		},
		{
			"partial", `{"status":"success","isPartial":true,"data":{"result":[]}}`,
			decoded{Status: "success", Warnings: []string{"the server could reach a part of the data only"}},
		},
		{"null for nothing", `{"status":"success","warnings":null,"data":{"result":null}}`, decoded{Status: "success"}},
		{"null data", `{"status":"success","data":null}`, decoded{Status: "success"}},
		{"scalar", `{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}`, decoded{Status: "success", ResultType: "scalar", Plain: true}},
		{
			"histograms", `{"data":{"result":[{"metric":{},"histograms":[[1,{"count":"3","buckets":[[0,"1","2","3"]]}],[2,{}]]},{"metric":{},"histogram":[1,{}]}]}}`,
			decoded{Histograms: 3, Series: []decodedSeries{{Labels: map[string]string{}}, {Labels: map[string]string{}}}},
		},
		{"a value out of range", `{"data":{"result":[{"value":[1,"1e999"]}]}}`, decoded{Series: []decodedSeries{{map[string]string{}, []string{"1000 +Inf"}}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for how, r := range map[string]io.Reader{
				"whole": strings.NewReader(c.in), "byte by byte": iotest.OneByteReader(strings.NewReader(c.in)),
				"error beside data": iotest.DataErrReader(strings.NewReader(c.in)),
			} {
				got, err := decodeAll(r)
				if err != nil {
					t.Errorf("%s: decoding: error %v, want none", how, err)
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("%s: decoded response differs (-want +got):\n%s", how, diff)
				}
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, in := range []string{
		`[]`, `"x"`, `{"data":[]}`, `{"data":{"result":{}}}`, `{"data":{"result":[{"metric":[]}]}}`, `{"data":{"result":[{"value":{}}]}}`,
		`{"data":{"result":[{"values":[[1]]}]}}`, `{"data":{"result":[{"values":[[1,2]]}]}}`, `{"data":{"result":[{"values":[["1","2"]]}]}}`,
		`{"data":{"result":[{"values":[[1,"2",3]]}]}}`, `{"data":{"result":[{"values":[[1e400,"2"]]}]}}`, `{"data":{"result":[{"values":[[NaN,"2"]]}]}}`,
		`{"data":{"result":[{"values":[[1,"2"] [3,"4"]]}]}}`, `{"data":{"result":[{"values":[[1,""]]}]}}`, `{"data":{"result":[{"metric":{"a":1}}]}}`,
		`{"status":1}`, `{"status":"a` + "\n" + `"}`, `{"status":"\x"}`, `{"status":"\u00zz"}`, `{"x":tru}`, `{"x":}`, `{"x" "y"}`, `{x:1}`,
		`{"x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, `{"x":"` + strings.Repeat("a", maxString+1) + `"}`,
		`{"x":` + strings.Repeat("1", 70_000) + `}`, `{"a":1}{`, `{"isPartial":{}}`,
		`{"data":{"result":[{"metric":{` + strings.Repeat(`"a":"`+strings.Repeat("b", 1000)+`",`, 1100) + `"c":"d"}}]}}`,
	} {
		_, err := decodeAll(strings.NewReader(in))
		var bad *malformedError
		if !errors.As(err, &bad) || len(err.Error()) > 200 {
			t.Errorf("%.80q: error %v, want a short one that says malformed", in, err)
		}
	}
}

func TestDecodeTellsACutFromNonsense(t *testing.T) {
	whole := `{"status":"success","warnings":["w"],"data":{"resultType":"matrix","result":[{"metric":{"a":"\u00e9"},"values":[[1,"1"],[2,"2"]]}]}}`
	for n := range len(whole) {
		if _, err := decodeAll(strings.NewReader(whole[:n])); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut after %d bytes: error %v, want unexpected EOF", n, err)
		}
	}

	boom := errors.New("boom")
	if _, err := decodeAll(io.MultiReader(strings.NewReader(whole[:50]), iotest.ErrReader(boom))); !errors.Is(err, boom) {
		t.Errorf("error %v, want the reader's", err)
	}
}

// TestDecodeAgreesWithTheStandardLibrary decodes random matrices whose series cross buffer boundaries.
func TestDecodeAgreesWithTheStandardLibrary(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	var want []decodedSeries
	b.WriteString(`{"status":"success","data":{"resultType":"matrix","result":[`)

	for i := range 200 {
		if i > 0 {
			b.WriteByte(',')
		}

		name, _ := json.Marshal(strings.Repeat("é\"", random.IntN(50)))
		fmt.Fprintf(&b, `{"metric":{"n":%s},"values":[`, name)

		var plain string
		if err := json.Unmarshal(name, &plain); err != nil {
			t.Fatal(err)
		}

		s := decodedSeries{Labels: map[string]string{"n": plain}}
		for j := range random.IntN(300) {
			if j > 0 {
				b.WriteByte(',')
			}

			ms := random.Int64N(2e12)
			v := math.Float64frombits(random.Uint64())
			fmt.Fprintf(&b, `[%s,"%s"]`, strconv.FormatFloat(float64(ms)/1000, 'f', -1, 64), strconv.FormatFloat(v, 'g', -1, 64))
			s.Points = append(s.Points, fmt.Sprintf("%d %v", ms, v))
		}

		b.WriteString("]}")
		want = append(want, s)
	}

	b.WriteString("]}}")
	got, err := decodeAll(iotest.HalfReader(strings.NewReader(b.String())))
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(want, got.Series); diff != "" {
		t.Errorf("decoded series differ (-want +got):\n%s", diff)
	}
}

// FuzzDecode checks that only valid JSON is decoded, and independently of the chunks of the input.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"a":"b"},"values":[[1.5,"2"],[2,"NaN"]]}]}}`,
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"2"]}]},"warnings":["w"]}`,
		`{"status":"error","errorType":"bad_data","error":"e\u00e9\ud83d\ude00"}`,
		`{"data":{"result":[1,"2"],"resultType":"scalar"}}`, `{"a":[{"b":null},true,-1e5]}`, `<html>`,
	} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, in string) {
		whole, err := decodeAll(strings.NewReader(in))
		pieces, err2 := decodeAll(iotest.OneByteReader(strings.NewReader(in)))
		if (err == nil) != (err2 == nil) {
			t.Fatalf("decoding %q: error %v at once and %v byte by byte, want both or none", in, err, err2)
		}
		if err != nil {
			return
		}

		if diff := cmp.Diff(whole, pieces, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("decoding %q byte by byte differs, want the same (-at once +byte by byte):\n%s", in, diff)
		}

		if !json.Valid([]byte(in)) {
			t.Errorf("decoding %q: no error, want one: it is not JSON", in)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	var body strings.Builder
	body.WriteString(`{"status":"success","data":{"resultType":"matrix","result":[`)

	samples := 0
	for i := range 100 {
		if i > 0 {
			body.WriteByte(',')
		}

		fmt.Fprintf(&body, `{"metric":{"container":"app","namespace":"team-%d","pod":"web-5d4f8c7b9d-%d"},"values":[`, i%7, i)
		for j := range 288 {
			if j > 0 {
				body.WriteByte(',')
			}

			fmt.Fprintf(&body, `[%d,"%v"]`, 1770000000+j*300, 0.1+math.Sin(float64(i*j))/10)
			samples++
		}

		body.WriteString("]}")
	}

	body.WriteString("]}}")
	text := body.String()
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()

	for b.Loop() {
		d := &decoder{s: newScanner(strings.NewReader(text)), limit: 1_000_000, sink: discard{}}
		if err := d.decode(); err != nil {
			b.Fatal(err)
		}
	}

	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*samples), "ns/sample")
}
