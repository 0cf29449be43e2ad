// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Crontable prints the table pkg/cron/testdata/kubernetes.tsv: random cron expressions, and what the library that Kubernetes uses reads in them.
// The library has no maintainer and panics on some expressions, so that Crane has a parser of its own and only the table of the library:
//
//	cd hack/tools/crontable && go run . >../../../pkg/cron/testdata/kubernetes.tsv
package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

const (
	seed          = 38
	expressions   = 1500
	timesRecorded = 3
)

func main() {
	out := bufio.NewWriter(os.Stdout)
	fmt.Fprintln(out, "# Quoted expression, time, and the next times of the schedule in UTC: \"refused\" or \"never\" without any. Recorded from")
	fmt.Fprintln(out, "# github.com/robfig/cron/v3 v3.0.1 by hack/tools/crontable.")

	random := rand.New(rand.NewPCG(seed, seed))
	for _, text := range fixedExpressions() {
		printRow(out, text, randomTime(random))
	}
	for range expressions {
		printRow(out, randomExpression(random), randomTime(random))
	}

	if err := out.Flush(); err != nil {
		fmt.Fprintln(os.Stderr, "crontable:", err)
		os.Exit(1)
	}
}

func printRow(out *bufio.Writer, text string, from time.Time) {
	fmt.Fprintf(out, "%s\t%s\t%s\n", strconv.Quote(text), from.Format(time.RFC3339), strings.Join(nextTimes(text, from), " "))
}

func nextTimes(text string, from time.Time) []string {
	schedule, err := cron.ParseStandard(text)
	if err != nil {
		return []string{"refused"}
	}

	var times []string
	at := from
	for range timesRecorded {
		at = schedule.Next(at)
		if at.IsZero() {
			return append(times, "never")
		}

		times = append(times, at.Format(time.RFC3339))
	}

	return times
}

// fixedExpressions are descriptors and the edges of the grammar.
func fixedExpressions() []string {
	return []string{
		"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly", "@every 1h30m", "@every 90s", "@every 1500ms", "@every 1ms",
		"@every -5m", "@every 0", "@every 5", "@every  5m", "@every", "@Daily", " @daily", "@daily ", "@reboot", "@",
		"", " ", "* * * *", "* * * * * *", "  0 8 * * *  ", "0\t8\n*\r*\v*", "0\u00a08 * * *", "0\u20038 * * *",
		"*/15 0-23/2 1,15 jan-Dec Sun,tue-6", "? ? ? ? ?", "*/1 * * * *", "* * */1 * 1", "* * */2 * 1", "* * ? * 1", "* * 1 * ?", "0 0 1 * */2",
		"*-5 * * * *", "*-x * * * *", "?-5/7 * * * *", "*-5/2-3 * * * *", "5-9-12 * * * *", "** * * * *", "*5 * * * *",
		", * * * *", ",, * * * *", "1,,2 * * * *", ",1 * * * *", "1, * * * *", "0 0 , * *", "0 0 , * 1", "0 0 1 * ,",
		"+5 * * * *", "-5 * * * *", "5- * * * *", "5-+9 * * * *", "05 008 * * *", "0x5 * * * *", "1_0 * * * *", "1e1 * * * *", "5.0 * * * *",
		"60 * * * *", "59 24 * * *", "0 0 0 * *", "0 0 32 * *", "0 0 * 0 *", "0 0 * 13 *", "0 0 * * 7", "0 0 * * 6-0", "9-5 * * * *", "5-5 * * * *",
		"*/0 * * * *", "*/60 * * * *", "*/9223372036854775807 * * * *", "1/9223372036854775807 * * * *", "*/9223372036854775808 * * * *",
		"99999999999999999999 * * * *", "*/ * * * *", "/5 * * * *", "*//5 * * * *", "*/5/5 * * * *", "5/10 * * * *", "5-20/10 * * * *", "50-59/3 * * * *",
		"0 0 * JAN,feb-APR *", "0 0 * january *", "0 0 * * Sunday", "0 0 * * mon-fri/2", "0 0 * * sat-sun", "mon * * * *", "0 jan * * *", "0 0 jan * *", "0 0 * mon *",
		"0 0 * \u017fep *", "0 0 * * \u017fun", "0 0 * * L", "0 0 15W * *", "0 0 * * 1#2", "H * * * *",
		"0 0 29 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 31 2 1", "0 0 29 2 0", "0 0 29 2 ?", "59 23 31 12 *",
		"\u0661 * * * *", "\xff * * * *", "0\x00 * * * *",
	}
}

// randomExpression returns five fields, most of which are right, and now and then with a damaged byte.
func randomExpression(random *rand.Rand) string {
	low := []int{0, 0, 1, 1, 0}
	high := []int{59, 23, 31, 12, 6}
	names := [][]string{3: {"JAN", "feb", "Dec", "may"}, 4: {"SUN", "mon", "Sat", "wed"}}
	fields := make([]string, len(low))
	for i := range fields {
		value := func() string {
			if names[i] != nil && random.IntN(3) == 0 {
				return names[i][random.IntN(len(names[i]))]
			}

			return strconv.Itoa(low[i] + random.IntN(high[i]-low[i]+1+random.IntN(20)/19))
		}

		for n := range 1 + random.IntN(5)/3*random.IntN(3) {
			if n > 0 {
				fields[i] += ","
			}

			fields[i] += []string{"*", "*", "?", value(), value(), value() + "-" + value()}[random.IntN(6)]
			if random.IntN(5) == 0 {
				fields[i] += "/" + strconv.Itoa(random.IntN(20))
			}
		}
	}

	text := []byte(strings.Join(fields, " "))
	if random.IntN(10) == 0 {
		const damage = "*?,-/ 019@zT\t"

		text[random.IntN(len(text))] = damage[random.IntN(len(damage))]
	}

	return string(text)
}

// randomTime returns a time, one of two of which is the start of a minute.
func randomTime(random *rand.Rand) time.Time {
	const (
		firstYear = 2020
		years     = 15
	)

	second := 0
	if random.IntN(2) == 0 {
		second = random.IntN(60)
	}

	return time.Date(firstYear+random.IntN(years), time.Month(1+random.IntN(12)), 1+random.IntN(31), random.IntN(24), random.IntN(60), second, 0, time.UTC)
}
