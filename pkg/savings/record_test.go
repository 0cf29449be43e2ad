// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package savings_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/savings"
)

const gap = 15 * time.Minute

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}

	return t
}

// sample costs 10 an hour, of which 6 are those of shop, which promises 2 and realizes 1.
func sample() savings.Sample {
	return savings.Sample{Currency: "USD", Cluster: 10, Unknown: 1, Namespaces: map[string]savings.Amounts{
		"shop": {Cost: 6, Promised: 2, Realized: 1}, "bank": {Cost: 1, Available: 4}, "empty": {},
	}}
}

// add adds samples that are five minutes apart.
func add(t *testing.T, r *savings.Record, from, to string, s savings.Sample) {
	t.Helper()

	for now := at(from); !now.After(at(to)); now = now.Add(5 * time.Minute) {
		if err := r.Add(now, gap, s); err != nil {
			t.Fatal(err)
		}
	}
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()

	if math.Abs(got-want) > 1e-6 {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestAdd: amounts are split at midnight, gaps are left out, and the sums of namespaces and days agree.
func TestAdd(t *testing.T) {
	r := &savings.Record{}
	add(t, r, "2026-10-31T22:00:00Z", "2026-11-01T03:00:00Z", sample())
	october := r.Months["2026-10"][0]
	november := r.Months["2026-11"][0]
	near(t, "hours of October", october.Total().Hours, 2)
	near(t, "hours of November", november.Total().Hours, 3)

	near(t, "cost", november.Days[1].Cost, 30)
	near(t, "promised", november.Days[1].Promised, 6)
	near(t, "realised", november.Total().Realized, 3)
	near(t, "available", november.Total().Available, 12)
	near(t, "shop", november.Namespaces["shop"].Realized, 3)
	near(t, "idle", november.Idle(), 9)

	if _, ok := november.Namespaces["empty"]; ok || november.Total().Unknown != 1 {
		t.Errorf("November is %+v, want no amounts of the empty namespace and 1 unknown workload", november)
	}

	// Two hours without craned were not observed.
	add(t, r, "2026-11-01T05:00:00Z", "2026-11-01T06:00:00Z", sample())
	near(t, "hours with a gap", r.Months["2026-11"][0].Total().Hours, 4)

	// A clock that was set back by less than the gap counts nothing twice; by more, it counts from there.
	add(t, r, "2026-11-01T05:50:00Z", "2026-11-01T06:00:00Z", sample())
	near(t, "hours after a step back", r.Months["2026-11"][0].Total().Hours, 4)
	add(t, r, "2026-10-01T00:00:00Z", "2026-10-01T01:00:00Z", sample())
	near(t, "hours of October", r.Months["2026-10"][0].Total().Hours, 3)

	for range 3 { // A day has 24 hours, however often it is repeated.
		add(t, r, "2026-10-05T00:00:00Z", "2026-10-05T23:00:00Z", sample())
	}
	near(t, "hours of a repeated day", r.Months["2026-10"][0].Days[5].Hours, 24)
}

// TestCurrencies: amounts of different currencies are never added.
func TestCurrencies(t *testing.T) {
	r := &savings.Record{}
	for i := range 6 {
		s := sample()
		s.Currency = fmt.Sprintf("C%d", i)

		err := r.Add(at("2026-11-02T00:00:00Z").Add(time.Duration(i)*5*time.Minute), gap, s)
		if (err != nil) != (i > 4) { // The first sample begins the record.
			t.Errorf("Add of currency %d: error %v, want an error: %t", i, err, i > 4)
		}
	}

	if n := len(r.Months["2026-11"]); n != 4 {
		t.Errorf("the month has %d accounts, want 4", n)
	}
}

// TestBounds: months and namespaces are bounded, and so is the text, whatever is recorded.
func TestBounds(t *testing.T) {
	r := &savings.Record{}
	for i := range 60 * 28 {
		s := savings.Sample{Currency: "USD", Cluster: 1e6, Namespaces: map[string]savings.Amounts{}}
		for n := range 300 {
			name := fmt.Sprintf("%s-%d-%d", strings.Repeat("n", 50), i%7, n)
			s.Namespaces[name] = savings.Amounts{Cost: 1234.567891 + float64(n), Promised: -9876.54321, Realized: 1111.22222, Available: 3333.44444}
		}

		// Two samples a day: one hour of each day is observed.
		day := at("2024-01-01T00:00:00Z").AddDate(0, i/28, i%28)
		for _, now := range []time.Time{day, day.Add(10 * time.Minute)} {
			if err := r.Add(now, gap, s); err != nil {
				t.Fatal(err)
			}
		}
	}

	if len(r.Months) != savings.MaxMonths {
		t.Errorf("the record has %d months, want %d", len(r.Months), savings.MaxMonths)
	}

	last := r.Months["2028-12"][0]
	if len(last.Namespaces) != savings.MaxNamespaces+1 || last.Namespaces[savings.Other].Cost == 0 {
		t.Errorf("the last month has %d namespaces, want %d, and a cost of %s", len(last.Namespaces), savings.MaxNamespaces+1, savings.Other)
	}

	sum := 0.0
	for _, a := range last.Namespaces {
		sum += a.Realized
	}

	near(t, "sum of the namespaces", sum/last.Total().Realized, 1)
	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}

	size := 0
	for key, text := range data {
		size += len(key) + len(text)
	}

	t.Logf("%d bytes for %d months", size, len(data)-1)
	if size > 900<<10 || data["2028-12"] == "" {
		t.Errorf("Encode() has %d bytes, want at most %d, and the last month", size, 900<<10)
	}
}

// TestEncode: a record survives its text, and samples are added to the parsed record.
func TestEncode(t *testing.T) {
	r := &savings.Record{}
	add(t, r, "2026-11-01T00:00:00Z", "2026-11-01T02:00:00Z", sample())

	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}

	got, err := savings.Parse(data)
	if err != nil {
		t.Fatal(err)
	}

	add(t, got, "2026-11-01T02:05:00Z", "2026-11-01T03:00:00Z", sample())
	near(t, "hours", got.Months["2026-11"][0].Total().Hours, 3)
	near(t, "shop", got.Months["2026-11"][0].Namespaces["shop"].Promised, 6)
}

// TestParseErrors: what cannot be read is an error with its key, and the other months stay.
func TestParseErrors(t *testing.T) {
	good := `[{"currency":"USD","days":{"1":{"cost":1,"promised":0,"realised":0,"available":0,"hours":1}},"namespaces":{}}]`
	for key, text := range map[string]string{
		"2026-13": good, "2026-1": good, "2026-02": "", "2026-03": `[{"currency":""}]`, "2026-04": `[{"currency":"USD","days":{"32":{}}}]`,
		"2026-05": `[{"currency":"USD","days":{"1":{"hours":25}}}]`, "2026-06": `[{"currency":"USD","more":1}]`, "until": "yesterday",
		"2026-07": `[{"currency":"USD","days":{"1":{"cost":1e300}}}]`, "2026-08": `[{"currency":"USD","namespaces":{"a":{"cost":-1}}}]`,
	} {
		r, err := savings.Parse(map[string]string{key: text, "2026-11": good})
		if err == nil || !strings.Contains(err.Error(), "key "+key) || r.Months["2026-11"] == nil {
			t.Errorf("Parse(%s: %s) = %+v, %v; want an error with the key, and November", key, text, r, err)
		}
	}

	if err := (&savings.Record{}).Add(at("2026-11-01T00:00:00Z"), gap, savings.Sample{Currency: "USD", Cluster: math.NaN()}); err == nil {
		t.Error("Add(NaN) succeeded, want an error")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("2026-11", `[{"currency":"USD","days":{"1":{"cost":1,"hours":1}},"namespaces":{"a":{"cost":1}}}]`)
	f.Add("until", "2026-11-01T00:00:00Z")
	f.Fuzz(func(t *testing.T, key, text string) {
		r, err := savings.Parse(map[string]string{key: text})
		if err != nil {
			return
		}

		data, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}

		if _, err := savings.Parse(data); err != nil {
			t.Errorf("Parse(Encode()) of %q: %v, want no error", data, err)
		}
	})
}
