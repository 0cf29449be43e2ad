// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

func readAll(config map[string]string) (number float64, share float64, hours int, flag bool, words []string, err error) {
	r := Read(config)
	number = r.Number("number", 7, 0, 10)
	share = float64(r.Share("share", 0.5))
	hours = r.Hours("hours", 24, 1, 48)
	flag = r.Flag("flag", true)
	words = r.Words("words", []string{"a"}, []string{"a", "b"})

	return number, share, hours, flag, words, r.Err()
}

func TestRead(t *testing.T) {
	number, share, hours, flag, words, err := readAll(nil)
	if number != 7 || share != 0.5 || hours != 24 || !flag || !slices.Equal(words, []string{"a"}) || err != nil {
		t.Errorf("Read without settings = %v, %v, %v, %v, %v, %v, want 7, 0.5, 24, true, [a]", number, share, hours, flag, words, err)
	}

	number, share, hours, flag, words, err = readAll(map[string]string{
		"number": " 3.5 ", "share": "0", "hours": "90m", "flag": "false", "words": "b, a",
	})
	if number != 3.5 || share != 0 || hours != 2 || flag || !slices.Equal(words, []string{"b", "a"}) || err != nil {
		t.Errorf("Read = %v, %v, %v, %v, %v, %v, want 3.5, 0, 2, false, [b a]", number, share, hours, flag, words, err)
	}
}

func TestRead_Invalid(t *testing.T) {
	for key, values := range map[string][]string{
		"number": {"", "x", "NaN", "-1", "11", "Inf"}, "share": {"1.1", "-0.1"},
		"hours": {"", "x", "10s", "3d", "-1h"}, "flag": {"", "maybe"}, "words": {"", "c", "a,c", "a,"},
		"nubmer": {"3"},
	} {
		for _, v := range values {
			_, _, _, _, _, err := readAll(map[string]string{key: v})
			var bad *FieldError
			if !errors.As(err, &bad) || bad.Path != key || bad.Value != v || bad.Allowed == "" {
				t.Errorf("Read of %s %q: %v, want a FieldError with path, value and allowed values", key, v, err)
			}
		}
	}

	_, _, _, _, _, err := readAll(map[string]string{"number": "x", "other": "y"})
	if err == nil || !strings.Contains(err.Error(), "number") || !strings.Contains(err.Error(), "other") || !strings.Contains(err.Error(), "flag, hours") {
		t.Error("want both errors and the keys:", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add("number", "1e999")
	f.Add("hours", "106751d23h")
	f.Fuzz(func(t *testing.T, key, value string) {
		number, share, hours, _, words, _ := readAll(map[string]string{key: value})
		if math.IsNaN(number) || number < 0 || number > 10 || !(share >= 0 && share <= 1) || hours < 1 || hours > 48 || len(words) == 0 {
			t.Errorf("Read of %q=%q = %v, %v, %v, %v, want values within their bounds", key, value, number, share, hours, words)
		}
	})
}
