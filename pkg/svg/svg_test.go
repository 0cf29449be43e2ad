// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package svg_test

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"crane.io/crane/pkg/svg"
)

func TestImage(t *testing.T) {
	m := svg.New(200, 100)
	m.Group(svg.Point{Y: 10}, func() {
		m.Text(svg.Point{X: 1.26, Y: 2}, `a <b> & "c"`, "fill", `"red"`)
		m.Line(svg.Point{}, svg.Point{X: 3, Y: -4}, "stroke", "black")
	})
	m.Polyline([]svg.Point{{X: 1, Y: 2}, {X: math.NaN(), Y: math.Inf(1)}})
	m.Polygon([]svg.Point{{X: 1, Y: 2}, {X: 3, Y: 4.04}})
	m.Path("M1 2V3", "stroke", "blue")

	want := `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 200 100" font-family="sans-serif" font-size="12">
<rect x="0" y="0" width="200" height="100" fill="#ffffff"/>
<g transform="translate(0 10)">
<text x="1.3" y="2" fill="&#34;red&#34;">a &lt;b&gt; &amp; &#34;c&#34;</text>
<line x1="0" x2="3" y1="0" y2="-4" stroke="black"/>
</g>
<polyline fill="none" points="1,2 0,0"/>
<polygon points="1,2 3,4"/>
<path fill="none" d="M1 2V3" stroke="blue"/>
</svg>
`

	if got := m.String(); got != want {
		t.Errorf("String() =\n%s\nwant\n%s", got, want)
	}

	for d := xml.NewDecoder(strings.NewReader(m.String())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
