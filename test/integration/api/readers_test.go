// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"crane.io/crane/pkg/cron"
	"crane.io/crane/pkg/units"
)

// The schemas describe durations, numbers and cron expressions by regular expressions, the controllers read them by
// parsers. These tests hold the two together.

// create sends an object in a dry run and returns the error of the server.
func create(t *testing.T, object *unstructured.Unstructured) error {
	t.Helper()

	options := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll}}
	_, err := on(object).Create(t.Context(), object, options)
	return err
}

func TestSchemaAndReaderAgreeOnDurations(t *testing.T) {
	minimal := minimalObjects(t)["RecommendationRule"]
	for _, text := range []string{
		"1s", "24h", "30m", "1h30m", "7d", "1d12h", "1d12h30m", "01d", "99999d", "1.5h", ".5h", "1.h", "+1h", "100ms", "5us", "5µs", "5μs", "5ns",
		"720h0m0s", "604800s", "999999h",
		"d", "1", "0", "0s", "0d", "0d0h", "-1h", "-1d", "1w", "1y", "1.5d", "h", ".h", "+", "+1d", "1d+1h", "12h1d", "1 h", "1h 30m", "1H", "1D", "9999999h",
		"106752d", "∞", "1e3s", "1_000s", "0x1h", "NaN",
	} {
		object := minimal.DeepCopy()
		if err := unstructured.SetNestedField(object.Object, text, "spec", "runInterval"); err != nil {
			t.Fatal(err)
		}

		duration, parseError := units.ParseDuration(text)
		readable := parseError == nil && duration > 0
		if err := create(t, object); (err == nil) != readable {
			t.Errorf("%q: the schema returned %v, want what the reader says: %v, %v", text, err, duration, parseError)
		}
	}
}

func TestSchemaAndReaderAgreeOnNumbers(t *testing.T) {
	minimal := minimalObjects(t)["TimeSeriesPrediction"]
	for _, text := range []string{
		"0", "1", "0.15", ".5", "5.", "+1", "1e-10", "1E3", "00.1", "10000.0",
		"-1", "-0.1", "1e", "e1", ".", "+", "1,5", "15%", "0x1p-2", "Inf", "+Inf", "NaN", "1_000", " 1", "1 ", "one",
	} {
		object := patched(t, minimal, percentile(fmt.Sprintf("marginFraction: %q", text)))
		number, parseError := strconv.ParseFloat(text, 64)
		decimal := !strings.ContainsAny(strings.ToLower(text), "x_in") // what ParseFloat also reads

		readable := parseError == nil && number >= 0 && decimal
		if err := create(t, object); (err == nil) != readable {
			t.Errorf("%q: the schema returned %v, want what the reader says: %v, %v", text, err, number, parseError)
		}
	}
}

// TestSchemaAcceptsParsedCrons generates expressions; the schema must accept those that the parser accepts. The contrary does not hold: a
// regular expression cannot check that a range begins before it ends.
func TestSchemaAcceptsParsedCrons(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var read []string
	for tries := 0; len(read) < 1000; tries++ {
		if tries > 1_000_000 {
			t.Fatalf("%d expressions of %d tries can be read, want 1000", len(read), tries)
		}

		if expression := someCron(random); parses(expression) {
			read = append(read, expression)
		}
	}

	read = append(read, "@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly", "@every 1h30m",
		"  0 8 * * *  ", "0\t8  * * *", "*/15 0-23/2 1,15 jan-Dec Sun,tue-6")

	minimal := minimalObjects(t)["EffectiveHorizontalPodAutoscaler"]
	for batch := range slices.Chunk(read, 50) {
		var crons []any
		for i, expression := range batch {
			if !parses(expression) {
				t.Errorf("parses(%q) = false, want true", expression)
			}

			crons = append(crons, map[string]any{
				"name": strconv.Itoa(i), "start": expression, "end": expression, "targetReplicas": int64(1),
			})
		}

		object := minimal.DeepCopy()
		if err := unstructured.SetNestedSlice(object.Object, crons, "spec", "crons"); err != nil {
			t.Fatal(err)
		}

		if err := create(t, object); err != nil {
			t.Errorf("creating crons %q: %v", batch, err)
		}
	}
}

func parses(expression string) bool {
	_, err := cron.Parse(expression)
	return err == nil
}

// someCron makes up five fields, most of which are right.
func someCron(random *rand.Rand) string {
	names := [][]string{nil, nil, nil, {"JAN", "feb", "Dec"}, {"SUN", "mon", "Sat"}}
	bounds := []int{60, 24, 32, 13, 7}
	value := func(field int) string {
		switch {
		case names[field] != nil && random.IntN(3) == 0:
			return names[field][random.IntN(3)]
		case random.IntN(10) == 0:
			return "0" + strconv.Itoa(random.IntN(bounds[field]))
		default:
			return strconv.Itoa(random.IntN(bounds[field] + 1))
		}
	}

	element := func(field int) string {
		text := []string{"*", "?", value(field), value(field), value(field) + "-" + value(field)}[random.IntN(5)]
		if random.IntN(4) == 0 {
			text += "/" + strconv.Itoa(random.IntN(6))
		}

		return text
	}

	var parts []string
	for field := range bounds {
		elements := []string{element(field)}
		for random.IntN(4) == 0 {
			elements = append(elements, element(field))
		}
		parts = append(parts, strings.Join(elements, ","))
	}

	return strings.Join(parts, " ")
}
