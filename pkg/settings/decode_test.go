// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/units"
)

type upper string

func (u *upper) DecodeField(raw json.RawMessage) string {
	text := unquote(raw)
	*u = upper(text)

	if strings.ToUpper(text) != text {
		return "must be in capitals"
	}

	return ""
}

type inner struct {
	Number float64 `json:"number"`
	Words  []string
}

type document struct {
	inner
	Text    string           `json:"text"`
	Flag    bool             `json:"flag"`
	Window  time.Duration    `json:"window"`
	CPU     units.MilliCPU   `json:"cpu"`
	Memory  units.Bytes      `json:"memory"`
	Loud    upper            `json:"loud"`
	Below   *inner           `json:"below"`
	List    []inner          `json:"list"`
	ByName  map[string]inner `json:"byName"`
	Raw     json.RawMessage  `json:"raw"`
	Hidden  chan int
	Omitted string `json:"omitted"`
}

func TestDecode(t *testing.T) {
	got := document{Omitted: "default"}
	errs := Decode([]byte(`{"number": 1.5, "text": "", "flag": true, "window": "7d", "cpu": "250m", "memory": 1024, "loud": "A",
		"below": {"number": 2}, "list": [{}, {"number": 3}], "byName": {"a": {"number": 4}}, "raw": [1]}`), &got)

	want := document{
		inner: inner{Number: 1.5}, Flag: true, Window: 7 * 24 * time.Hour, CPU: 250, Memory: 1024, Loud: "A", Below: &inner{Number: 2},
		List: []inner{{}, {Number: 3}}, ByName: map[string]inner{"a": {Number: 4}}, Raw: json.RawMessage("[1]"), Omitted: "default",
	}
	if errs.Err() != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v: %v", got, want, errs.Err())
	}
}

func TestDecode_Invalid(t *testing.T) {
	for text, want := range map[string]struct{ path, says string }{
		``: {"", "not a JSON object"}, `[]`: {"", "not a JSON object"}, `null`: {"", "not a JSON object"}, `{} {}`: {"", "after the object"},
		`{"a"}`: {"", "not a JSON object"}, `{"text":`: {"", "not a JSON object"},
		`{"textt": 1}`: {"textt", "did you mean text?"}, `{"Words": []}`: {"Words", "unknown field"}, `{"Hidden": 1}`: {"Hidden", "unknown field"},
		`{"text": "a", "text": "b"}`: {"text", "more than once"}, `{"text": 1}`: {"text", "must be a text"}, `{"text": null}`: {"text", "must be a text"},
		`{"flag": 1}`: {"flag", "true or false"}, `{"number": "1"}`: {"number", "must be a number"}, `{"number": 1e999}`: {"number", "must be a number"},
		`{"window": 7}`: {"window", "must be a duration"}, `{"cpu": "-1"}`: {"cpu", "not below zero"}, `{"memory": "1E9999"}`: {"memory", "quantity"},
		`{"loud": "a"}`: {"loud", "capitals"}, `{"below": null}`: {"below", "must be an object"}, `{"list": null}`: {"list", "must be a list"},
		`{"below": {"x": 1}}`: {"below.x", "known are number"}, `{"list": [{}, {"number": ""}]}`: {"list[1].number", "must be a number"},
		`{"byName": {"a": 1}}`: {"byName.a", "must be an object"}, `{"byName": {"a": {}, "a": {}}}`: {"byName.a", "more than once"},
		"{\"a\\nb\": 1}": {`"a\nb"`, "unknown field"},
	} {
		err := Decode([]byte(text), &document{}).Err()
		var bad *FieldError
		if !errors.As(err, &bad) || bad.Path != want.path && !strings.Contains(want.path, "\\") || !strings.Contains(err.Error(), want.says) {
			t.Errorf("Decode(%s): %v, want %s of %q", text, err, want.says, want.path)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("Decode(%s): %q, want an error of one line", text, err)
		}
	}
}

func TestErrors_AddUnreported(t *testing.T) {
	var errs Errors
	errs.Fail("b.c", "1", "must be 2")
	errs.Check(true, "x", 1, "")
	var more Errors
	more.Check(false, "b", 3, "must be 4")
	more.Check(false, "b.c.d", 3, "must be 4")
	more.Check(false, "a[1]", 3, "must be 4")
	errs.AddUnreported(more)

	if got := errs.Below("top").Err().Error(); got != "top.a[1]: \"3\": must be 4\ntop.b.c: \"1\": must be 2" {
		t.Errorf("Err = %q, want only the errors of fields without one, below top and ordered by path", got)
	}
}

func TestRead_AbsentSettings(t *testing.T) {
	r := Read(map[string]string{"b": "90m", "ratio.x": "2", "ratio.y": "3"})
	if r.Has("a") || r.Number("a", 7, 0, 9) != 7 || r.Duration("b", 0, 0, time.Hour) != 0 || !slices.Equal(r.Keys("ratio."), []string{"ratio.x", "ratio.y"}) {
		t.Errorf("Read = %+v, want the defaults of a and b and the keys ratio.x and ratio.y", r)
	}

	r.Parse("c", func(string) error { t.Error("Parse calls parse for an absent field, want no call"); return nil })
	if text := r.Text("d", "none"); text != "none" {
		t.Errorf("Text of an absent field = %q, want none", text)
	}
	if err := r.Err(); err == nil || err.Error() != `b: "90m": must be a duration from 0s to 1h0m0s` {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"number": 1, "list": [{"number": 2}], "byName": {"a": {}}}`))
	f.Add([]byte(`{"cpu": "9E", "window": "106751d23h", "below": {"below": {}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var d document
		if err := Decode(data, &d).Err(); err == nil && (d.CPU < 0 || d.Memory < 0) {
			t.Errorf("Decode(%s) = %+v, want no negative quantity", data, d)
		} else if err != nil && err.Error() == "" {
			t.Errorf("Decode(%s): an error without a message, want one", data)
		}
	})
}
