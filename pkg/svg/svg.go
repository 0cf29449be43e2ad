// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package svg writes charts as SVG images that need no other file.
package svg

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// Image is an SVG image on a white background. Coordinates are pixels from the top left corner; a coordinate that is
// not a finite number is written as 0.
type Image struct {
	body strings.Builder
}

// Point is a position in an image.
type Point struct{ X, Y float64 }

// New returns an empty image.
func New(width, height int) *Image {
	m := &Image{}
	fmt.Fprintf(&m.body, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	m.Rect(Point{}, float64(width), float64(height), "fill", "#ffffff")

	return m
}

// Group moves what draw draws by the offset.
func (m *Image) Group(offset Point, draw func()) {
	fmt.Fprintf(&m.body, `<g transform="translate(%s %s)">`+"\n", number(offset.X), number(offset.Y))
	draw()
	m.body.WriteString("</g>\n")
}

// Text writes a line of text. Attributes, here and below, are names followed by their values.
func (m *Image) Text(at Point, text string, attributes ...string) {
	m.open("text", append([]string{"x", number(at.X), "y", number(at.Y)}, attributes...))
	fmt.Fprintf(&m.body, ">%s</text>\n", html.EscapeString(text))
}

// Rect draws a rectangle.
func (m *Image) Rect(corner Point, width, height float64, attributes ...string) {
	m.element("rect", []string{"x", number(corner.X), "y", number(corner.Y), "width", number(width), "height", number(height)}, attributes)
}

// Line draws a straight line.
func (m *Image) Line(from, to Point, attributes ...string) {
	m.element("line", []string{"x1", number(from.X), "x2", number(to.X), "y1", number(from.Y), "y2", number(to.Y)}, attributes)
}

// Polyline draws lines between consecutive points.
func (m *Image) Polyline(points []Point, attributes ...string) {
	m.element("polyline", []string{"fill", "none", "points", coordinates(points)}, attributes)
}

// Polygon draws the area that the points enclose.
func (m *Image) Polygon(points []Point, attributes ...string) {
	m.element("polygon", []string{"points", coordinates(points)}, attributes)
}

// Path draws the lines of the path data d.
func (m *Image) Path(d string, attributes ...string) {
	m.element("path", []string{"fill", "none", "d", d}, attributes)
}

// WriteTo writes the whole image.
func (m *Image) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, m.String())
	return int64(n), err
}

// String returns the whole image.
func (m *Image) String() string { return m.body.String() + "</svg>\n" }

func (m *Image) element(name string, required, attributes []string) {
	m.open(name, append(required, attributes...))
	m.body.WriteString("/>\n")
}

func (m *Image) open(name string, attributes []string) {
	m.body.WriteString("<" + name)
	for i := 0; i+1 < len(attributes); i += 2 {
		fmt.Fprintf(&m.body, ` %s="%s"`, attributes[i], html.EscapeString(attributes[i+1]))
	}
}

func coordinates(points []Point) string {
	pairs := make([]string, len(points))
	for i, p := range points {
		pairs[i] = number(p.X) + "," + number(p.Y)
	}

	return strings.Join(pairs, " ")
}

// number rounds to a tenth of a pixel.
func number(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		v = 0
	}

	return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
}
