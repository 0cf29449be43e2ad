// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"html"
	"strings"
	"time"
)

// Sizes of a panel of the SVG chart, in pixels; every series has its panel.
const (
	svgWidth, svgHeight = 960, 320
	svgLeft, svgRight   = 64, 16
	svgTop, svgBottom   = 56, 36
	svgPlotWidth        = svgWidth - svgLeft - svgRight
	svgPlotHeight       = svgHeight - svgTop - svgBottom
	svgTicks            = 4
)

// drawSVG draws every series in a panel of its own, one below the other.
func drawSVG(all []forecastOf) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", svgWidth, svgHeight*len(all))
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", svgWidth, svgHeight*len(all))
	for i, f := range all {
		fmt.Fprintf(&b, `<g transform="translate(0 %d)">`+"\n", i*svgHeight)
		newPanel(f).draw(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// panel maps one series to pixels.
type panel struct {
	f    forecastOf
	cols []column
	from time.Time
	each time.Duration
	top  float64
}

func newPanel(f forecastOf) panel {
	p := panel{f: f}
	p.cols, p.from, p.each = f.columns(svgPlotWidth)
	for _, c := range p.cols {
		if c.known {
			p.top = max(p.top, c.upper)
		}
	}
	if p.top <= 0 {
		p.top = 1
	}
	return p
}

func (p panel) y(v float64) float64 { return svgTop + svgPlotHeight*(1-v/p.top) }

func (p panel) x(t time.Time) float64 { return svgLeft + float64(t.Sub(p.from))/float64(p.each) }

func (p panel) draw(b *strings.Builder) {
	lines := strings.Split(strings.TrimSpace(p.f.headline()), "\n")
	fmt.Fprintf(b, `<text x="%d" y="16" font-weight="bold">%s</text>`+"\n", svgLeft, html.EscapeString(lines[0]))
	for i, line := range lines[1:] {
		fmt.Fprintf(b, `<text x="%d" y="%d" fill="#555555">%s</text>`+"\n", svgLeft, 32+14*i, html.EscapeString(line))
	}
	for i := range svgTicks + 1 {
		v := p.top * float64(i) / svgTicks
		fmt.Fprintf(b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#dddddd"/>`+"\n", svgLeft, svgWidth-svgRight, p.y(v), p.y(v))
		fmt.Fprintf(b, `<text x="%d" y="%.1f" text-anchor="end">%.3g</text>`+"\n", svgLeft-6, p.y(v)+4, v)
		at := p.from.Add(p.each * time.Duration(svgPlotWidth*i/svgTicks))
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", min(p.x(at), svgWidth-42), svgHeight-svgBottom+18, at.UTC().Format("01-02 15:04"))
	}
	p.past(b)
	for _, band := range []struct {
		level  int
		colour string
	}{{3, "#fde0c5"}, {2, "#fbb777"}, {1, "#f58b2c"}} {
		p.band(b, band.level, band.colour)
	}
	p.median(b)
	fmt.Fprintf(b, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#888888" stroke-dasharray="4 3"/>`+"\n",
		p.x(p.f.forecast.Start), p.x(p.f.forecast.Start), svgTop, svgHeight-svgBottom)
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end" fill="#555555">blue: history; line: p50; bands: to p90, p95, p99</text>`+"\n", svgWidth-svgRight, svgHeight-4)
}

// past draws the range of history in each column; what is not known stays empty.
func (p panel) past(b *strings.Builder) {
	b.WriteString(`<path stroke="#3b75af" fill="none" d="`)
	for i, c := range p.cols {
		if c.past && c.known {
			// At least a pixel high, so that a flat series is seen.
			fmt.Fprintf(b, "M%d %.1fV%.1f", svgLeft+i, p.y(c.lowest)+0.5, p.y(c.upper)-0.5)
		}
	}
	b.WriteString(`"/>` + "\n")
}

// band fills from the median to a level.
func (p panel) band(b *strings.Builder, level int, colour string) {
	var up, down []string
	for i, c := range p.cols {
		if !c.past && c.known {
			up = append(up, fmt.Sprintf("%d,%.1f", svgLeft+i, p.y(c.quantiles[level])))
			down = append([]string{fmt.Sprintf("%d,%.1f", svgLeft+i, p.y(c.quantiles[0]))}, down...)
		}
	}
	fmt.Fprintf(b, `<polygon fill="%s" points="%s"/>`+"\n", colour, strings.Join(append(up, down...), " "))
}

func (p panel) median(b *strings.Builder) {
	var points []string
	for i, c := range p.cols {
		if !c.past && c.known {
			points = append(points, fmt.Sprintf("%d,%.1f", svgLeft+i, p.y(c.quantiles[0])))
		}
	}
	fmt.Fprintf(b, `<polyline fill="none" stroke="#b3440a" stroke-width="1.5" points="%s"/>`+"\n", strings.Join(points, " "))
}
