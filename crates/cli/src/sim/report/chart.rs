// SPDX-License-Identifier: MIT OR Apache-2.0
//! A picture with two axes, as SVG: lines over a logarithmic or linear axis, or points, with their names beside them.
//!
//! Written by hand: of the plotting crates plotters, the best kept, draws shapes only. It has no `<title>`, which is what tells a
//! figure when one points at it, no labels that keep out of each other's way, and legends that are unreadable with 15 lines.

use std::fmt::{self, Write};

use super::labels::{self, LINE_HEIGHT, Place};
use super::look::{Look, Marker, Weight};
use super::page::escaped;

/// How an axis counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    Log,
}

/// An axis.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) label: String,
    pub(super) scale: Scale,
    /// Its beginning, left or below, and its end. The first may be the larger one.
    pub(super) low: f64,
    pub(super) high: f64,
    /// Where it is labelled, and how; a second line of text may be below.
    pub(super) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// A linear one around all of `values`, labelled at round numbers.
    pub(super) fn around(label: &str, values: impl Iterator<Item = f64>, text: impl Fn(f64) -> String) -> Self {
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), it| (low.min(it), high.max(it)));
        let (low, high) = if low > high { (0.0, 1.0) } else { (low, high) };
        let step = round_step((high - low).max(high.abs() * 0.02).max(1e-9) / 4.0);
        let (first, last) = ((low / step).floor(), (high / step).ceil().max((low / step).floor() + 1.0));
        let ticks = (0..=(last - first) as u64).map(|nth| (first + nth as f64) * step);
        Self {
            label: label.to_owned(),
            scale: Scale::Linear,
            low: first * step,
            high: last * step,
            ticks: ticks.map(|at| (at, text(at))).collect(),
        }
    }

    /// Where a value is, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        }
    }
}

/// The least of 1, 2, 5, 10, 20, 50, ... that is at least `step`, or of such parts of 1.
pub(super) fn round_step(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0, 10.0].iter().map(|it| it * power).find(|it| *it >= step * 0.999).unwrap_or(10.0 * power)
}

/// One value.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    /// What is told of it when one points at it.
    pub(super) about: String,
}

/// Values that belong together.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) look: Look,
    pub(super) points: Vec<Point>,
}

/// What a chart shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Lines with a mark at each value, named at their right ends.
    Lines,
    /// Lines of many values, without marks.
    Curves,
    /// A point each, named beside it.
    Points,
}

/// A picture.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) kind: Kind,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: Vec<Series>,
    /// Values of y with a dashed line and a name.
    pub(super) levels: Vec<(f64, String)>,
    /// Values of x with one.
    pub(super) moments: Vec<(f64, String)>,
    /// The points beyond which there is none, as a line from left to right.
    pub(super) front: Vec<(f64, f64)>,
}

const TOP: f64 = 34.0;
const LEFT: f64 = 58.0;

impl Chart {
    /// Width, height, and room at the right and below.
    fn size(&self) -> (f64, f64, f64, f64) {
        let second_line = if self.x.ticks.iter().any(|it| it.1.contains('\n')) { LINE_HEIGHT } else { 0.0 };
        let (width, height, right) =
            if self.kind == Kind::Points { (440.0, 350.0, 30.0) } else { (900.0, 430.0, 112.0) };
        (width, height, right, 50.0 + second_line)
    }

    fn x(&self, value: f64) -> f64 {
        let (width, _, right, _) = self.size();
        LEFT + self.x.share(value) * (width - LEFT - right)
    }

    fn y(&self, value: f64) -> f64 {
        let (_, height, _, below) = self.size();
        height - below - self.y.share(value) * (height - TOP - below)
    }

    /// As an `svg` element.
    pub(super) fn svg(&self) -> Result<String, fmt::Error> {
        let (width, height, ..) = self.size();
        let (mut out, title) = (String::new(), escaped(&self.title));
        writeln!(
            out,
            "<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{title}\">"
        )?;
        writeln!(out, "<text class=\"heading\" x=\"{LEFT}\" y=\"18\">{title}</text>")?;
        self.axes(&mut out)?;
        self.guides(&mut out)?;
        let mut series: Vec<&Series> = self.series.iter().filter(|it| !it.points.is_empty()).collect();
        // Who is drawn last is on top.
        series.sort_by_key(|it| it.look.weight);
        let places = self.places(&series);
        for (it, place) in series.into_iter().zip(places) {
            self.draw(&mut out, it, &place)?;
        }
        out.push_str("</svg>\n");
        Ok(out)
    }

    fn axes(&self, out: &mut String) -> fmt::Result {
        let (width, height, right, below) = self.size();
        let (end, floor) = (width - right, height - below);
        for (at, text) in &self.y.ticks {
            let (y, text) = (self.y(*at), escaped(text));
            writeln!(out, "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{end}\"/>")?;
            writeln!(out, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>", LEFT - 7.0, y + 4.0)?;
        }
        let mut free_from = f64::MIN;
        for (at, text) in &self.x.ticks {
            let x = self.x(*at);
            writeln!(out, "<path class=\"grid\" d=\"M{x:.1} {TOP}V{floor}\"/>")?;
            let half = text.lines().map(labels::width).fold(0.0, f64::max) / 2.0;
            if x - half < free_from {
                continue;
            }
            free_from = x + half + 8.0;
            for (nth, line) in text.lines().enumerate() {
                let (y, line) = (floor + 17.0 + nth as f64 * LINE_HEIGHT, escaped(line));
                let class = if nth == 0 { "" } else { " class=\"minor\"" };
                writeln!(out, "<text{class} x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{line}</text>")?;
            }
        }
        writeln!(out, "<path class=\"axis\" fill=\"none\" d=\"M{LEFT} {TOP}V{floor}H{end}\"/>")?;
        let (middle, label) = ((LEFT + end) / 2.0, escaped(&self.x.label));
        writeln!(out, "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{label}</text>", height - 6.0)?;
        let (middle, label) = ((TOP + floor) / 2.0, escaped(&self.y.label));
        writeln!(out, "<text transform=\"translate(14 {middle}) rotate(-90)\" text-anchor=\"middle\">{label}</text>")
    }

    fn guides(&self, out: &mut String) -> fmt::Result {
        let (width, height, right, below) = self.size();
        for (at, text) in &self.levels {
            let (y, end, text) = (self.y(*at), width - right, escaped(text));
            writeln!(out, "<path class=\"guide\" d=\"M{LEFT} {y:.1}H{end}\"/>")?;
            writeln!(out, "<text class=\"minor\" x=\"{}\" y=\"{:.1}\">{text}</text>", LEFT + 6.0, y - 5.0)?;
        }
        for (at, text) in &self.moments {
            let (x, floor, text) = (self.x(*at), height - below, escaped(text));
            writeln!(out, "<path class=\"guide\" d=\"M{x:.1} {TOP}V{floor}\"/>")?;
            // Above the frame, where no line is.
            let y = TOP - 6.0;
            writeln!(out, "<text class=\"minor\" x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{text}</text>")?;
        }
        if let Some(((x, y), rest)) = self.front.split_first() {
            write!(out, "<path class=\"front\" d=\"M{:.1} {:.1}", self.x(*x), self.y(*y))?;
            for (x, y) in rest {
                write!(out, "H{:.1}V{:.1}", self.x(*x), self.y(*y))?;
            }
            writeln!(out, "H{:.1}\"/>", width - right)?;
        }
        Ok(())
    }

    /// Where the series' names go.
    fn places(&self, series: &[&Series]) -> Vec<Place> {
        let (width, height, right, below) = self.size();
        if self.kind == Kind::Points {
            let points =
                series.iter().filter_map(|it| it.points.first().map(|at| (self.x(at.x), self.y(at.y), &*it.name)));
            labels::around(&points.collect::<Vec<_>>(), (LEFT, TOP, width, height - below))
        } else {
            let ends = series.iter().filter_map(|it| it.points.last().map(|at| (self.x(at.x), self.y(at.y))));
            labels::beside(&ends.collect::<Vec<_>>(), width - right + 18.0, (TOP, height - below))
        }
    }

    fn draw(&self, out: &mut String, series: &Series, place: &Place) -> fmt::Result {
        let (look, name) = (series.look, escaped(&series.name));
        let colour = look.colour;
        let width = match look.weight {
            Weight::Ours => 3.2,
            Weight::Normal => 1.9,
            Weight::Background => 1.1,
        };
        writeln!(out, "<g class=\"series\"><title>{name}</title>")?;
        if self.kind != Kind::Points {
            let dashes =
                if look.dashes.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{}\"", look.dashes) };
            write!(
                out,
                "<path class=\"line\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"{dashes} stroke-linejoin=\"round\" d=\""
            )?;
            for (nth, point) in series.points.iter().enumerate() {
                let step = if nth == 0 { 'M' } else { 'L' };
                write!(out, "{step}{:.1} {:.1}", self.x(point.x), self.y(point.y))?;
            }
            writeln!(out, "\"/>")?;
        }
        if let Some((from, to)) = place.leader {
            writeln!(out, "<path class=\"leader\" d=\"M{:.1} {:.1}L{:.1} {:.1}\"/>", from.0, from.1, to.0, to.1)?;
        }
        if self.kind != Kind::Curves {
            for point in &series.points {
                let shape = shape(
                    look.marker,
                    self.x(point.x),
                    self.y(point.y),
                    if look.weight == Weight::Ours { 5.6 } else { 4.2 },
                );
                let about = escaped(&point.about);
                writeln!(
                    out,
                    "<path d=\"{shape}\" fill=\"{colour}\" stroke=\"#fff\" stroke-width=\".8\"><title>{about}</title></path>"
                )?;
            }
        }
        let class = match look.weight {
            Weight::Ours => " class=\"ours\"",
            Weight::Normal => "",
            Weight::Background => " class=\"minor\"",
        };
        let (x, y) = place.text;
        writeln!(out, "<text{class} x=\"{x:.1}\" y=\"{:.1}\">{name}</text></g>", y + 4.0)
    }
}

/// A mark around a point, as the path of an outline.
fn shape(marker: Marker, x: f64, y: f64, r: f64) -> String {
    let polygon = |corners: &[(f64, f64)]| {
        let corner = |(nth, (dx, dy)): (usize, &(f64, f64))| {
            format!("{}{:.1} {:.1}", if nth == 0 { 'M' } else { 'L' }, x + dx * r, y + dy * r)
        };
        corners.iter().enumerate().map(corner).collect::<String>() + "Z"
    };
    match marker {
        Marker::Circle => {
            format!("M{:.1} {y:.1}a{r} {r} 0 1 0 {} 0a{r} {r} 0 1 0 {} 0Z", x - r, 2.0 * r, -2.0 * r)
        }
        Marker::Square => polygon(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
        Marker::Up => polygon(&[(0.0, -1.2), (1.1, 0.9), (-1.1, 0.9)]),
        Marker::Down => polygon(&[(0.0, 1.2), (1.1, -0.9), (-1.1, -0.9)]),
        Marker::Diamond => polygon(&[(0.0, -1.3), (1.1, 0.0), (0.0, 1.3), (-1.1, 0.0)]),
        Marker::Cross => {
            const A: f64 = 1.2;
            const B: f64 = 0.4;
            polygon(&[
                (-B, -A),
                (B, -A),
                (B, -B),
                (A, -B),
                (A, B),
                (B, B),
                (B, A),
                (-B, A),
                (-B, B),
                (-A, B),
                (-A, -B),
                (-B, -B),
            ])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        let axis = Axis::around("", [17.2, 53.4].into_iter(), |it| format!("{it:.0}"));
        assert_eq!((axis.low, axis.high), (10.0, 60.0));
        let texts: Vec<_> = axis.ticks.iter().map(|it| &*it.1).collect();
        assert_eq!(texts, ["10", "20", "30", "40", "50", "60"]);
        for value in [0.0, 1.0, 99.9] {
            let axis = Axis::around("", [value].into_iter(), |it| it.to_string());
            assert!(axis.low <= value && value <= axis.high && axis.low < axis.high, "{axis:?}");
        }
    }

    #[test]
    fn a_logarithmic_axis_gives_factors_the_same_room() {
        let axis = Axis { label: String::new(), scale: Scale::Log, low: 10.0, high: 1000.0, ticks: Vec::new() };
        assert!((axis.share(100.0) - 0.5).abs() < 1e-12);
        assert_eq!((axis.share(10.0), axis.share(1000.0)), (0.0, 1.0));
    }

    #[test]
    fn steps_are_round() {
        for (step, round) in [(0.03, 0.05), (0.9, 1.0), (1.0, 1.0), (1.1, 2.0), (7.0, 10.0), (230.0, 500.0)] {
            assert!((round_step(step) - round).abs() < 1e-9, "{step}: {}", round_step(step));
        }
    }
}
