// SPDX-License-Identifier: MIT OR Apache-2.0
//! A chart with two axes, as SVG: lines or points, each with its name.
//!
//! Each chart is drawn twice, for wide and for narrow windows, since letters of a picture that is
//! made smaller cannot be read. It is written by hand: plotters, the best kept of the plotting
//! crates, draws shapes only. It has no `<title>`, which tells a figure when one points at it, and
//! its labels do not keep out of each other's way.

use std::fmt;

use super::axis::Axis;
use super::canvas::{Anchor, Canvas, bold_width, width, wrapped};
use super::labels::{self, LINE_HEIGHT, Label};
use super::look::{Look, Marker, Weight};
use super::page::escaped;

#[cfg(test)]
mod tests;

/// A value.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    /// The words for a reader who points at it.
    pub(super) about: String,
}

/// Values that belong together.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) look: Look,
    pub(super) points: Vec<Point>,
}

/// The kinds of charts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Lines with a mark at each value.
    Lines,
    /// Lines of many values, without marks.
    Curves,
    /// A point each, named beside it.
    Points,
}

/// The window that a chart is drawn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Window {
    Wide,
    Narrow,
}

/// A picture.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) kind: Kind,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: Vec<Series>,
    /// A value of y with a dashed line, and its name.
    pub(super) level: Option<(f64, String)>,
    /// A value of x with one.
    pub(super) moment: Option<(f64, String)>,
    /// The points beyond which there is none, as a line from left to right.
    pub(super) front: Vec<(f64, f64)>,
}

impl Chart {
    /// A chart of series, without any lines beside them.
    pub(super) fn new(title: &str, kind: Kind, (x, y): (Axis, Axis), series: Vec<Series>) -> Self {
        Self { title: title.to_owned(), kind, x, y, series, level: None, moment: None, front: Vec::new() }
    }

    /// The chart as two `svg` elements, of which a window shows the one that suits it.
    pub(super) fn svg(&self) -> Result<String, fmt::Error> {
        let draw = |window, class| {
            let (canvas, size) = Drawing::of(self, window).draw()?;
            Ok(canvas.svg(class, &self.title, size))
        };
        Ok(draw(Window::Wide, "for-wide")? + &draw(Window::Narrow, "for-narrow")?)
    }
}

/// A chart for a window: where everything goes.
struct Drawing<'a> {
    chart: &'a Chart,
    /// The series in the order of drawing: wide ones are below, ones with gaps above.
    series: Vec<&'a Series>,
    heading: Vec<String>,
    /// The width of the picture.
    width: f64,
    height: f64,
    /// The left end of the frame with the lines.
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
    /// The list of the lines' names, if that is below.
    legend: Option<Legend>,
}

/// Names below a chart, in columns.
struct Legend {
    column: f64,
    columns: usize,
}

impl Legend {
    /// Room for a piece of the line before its name.
    const SAMPLE: f64 = 34.0;

    fn of(series: &[&Series], room: f64) -> Self {
        let longest = series.iter().map(|it| bold_width(&it.name)).fold(0.0, f64::max);
        let column = Self::SAMPLE + longest + 12.0;
        Self { column, columns: ((room / column) as usize).max(1) }
    }

    fn height(&self, names: usize) -> f64 {
        names.div_ceil(self.columns) as f64 * (LINE_HEIGHT + 3.0) + 6.0
    }
}

const HEADING_HEIGHT: f64 = 19.0;

impl<'a> Drawing<'a> {
    fn of(chart: &'a Chart, window: Window) -> Self {
        let mut series: Vec<&Series> = chart.series.iter().filter(|it| !it.points.is_empty()).collect();
        if chart.kind == Kind::Points {
            // The marks that matter most are on top, and their names choose first.
            series.sort_by_key(|it| it.look.weight);
        } else {
            let gaps = |it: &&Series| !it.look.dashes.is_empty();
            series.sort_by(|a, b| b.look.width().total_cmp(&a.look.width()).then(gaps(a).cmp(&gaps(b))));
        }
        let (full, plot) = match (chart.kind, window) {
            (Kind::Points, Window::Wide) => (430.0, 260.0),
            (_, Window::Wide) => (860.0, 320.0),
            (_, Window::Narrow) => (336.0, 230.0),
        };
        let widest = |texts: &mut dyn Iterator<Item = &str>| texts.map(width).fold(0.0, f64::max);
        let left = widest(&mut chart.y.ticks.iter().map(|it| &*it.1)).max(20.0) + 12.0;
        let names = series.iter().map(|it| bold_width(&it.name)).fold(0.0, f64::max);
        let last_tick = chart.x.ticks.last().map_or(0.0, |it| it.1.lines().map(width).fold(0.0, f64::max) / 2.0);
        let right = match (chart.kind, window) {
            (Kind::Points, _) | (_, Window::Narrow) => full - last_tick.max(14.0) - 2.0,
            (_, Window::Wide) => full - (names + 30.0).max(last_tick + 2.0),
        };
        let heading = wrapped(&chart.title, full - 8.0);
        let moment = if chart.moment.is_some() { LINE_HEIGHT } else { 0.0 };
        let top = 6.0 + heading.len() as f64 * HEADING_HEIGHT + LINE_HEIGHT + moment + 11.0;
        let bottom = top + plot;
        let second_line = if chart.x.ticks.iter().any(|it| it.1.contains('\n')) { LINE_HEIGHT } else { 0.0 };
        let below = 20.0 + second_line + LINE_HEIGHT + 8.0;
        let is_beside = chart.kind == Kind::Points || window == Window::Wide;
        let legend = (!is_beside).then(|| Legend::of(&series, full));
        let height = bottom + below + legend.as_ref().map_or(0.0, |it| it.height(series.len()));
        Self { chart, series, heading, width: full, height, left, top, right, bottom, legend }
    }

    fn x(&self, value: f64) -> f64 {
        self.left + self.chart.x.share(value) * (self.right - self.left)
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom - self.chart.y.share(value) * (self.bottom - self.top)
    }

    fn draw(&self) -> Result<(Canvas, (f64, f64)), fmt::Error> {
        let mut canvas = Canvas::default();
        for (nth, line) in self.heading.iter().enumerate() {
            canvas.text("heading", (4.0, 17.0 + nth as f64 * HEADING_HEIGHT), Anchor::Left, line)?;
        }
        self.axes(&mut canvas)?;
        self.guides(&mut canvas)?;
        if self.chart.kind != Kind::Points {
            self.series.iter().try_for_each(|series| self.line(&mut canvas, series))?;
        }
        if self.chart.kind != Kind::Curves {
            let mut series = self.series.clone();
            series.sort_by_key(|it| it.look.weight);
            series.iter().try_for_each(|series| self.marks(&mut canvas, series))?;
        }
        self.names(&mut canvas)?;
        self.guide_names(&mut canvas)?;
        Ok((canvas, (self.width, self.height)))
    }

    fn axes(&self, canvas: &mut Canvas) -> fmt::Result {
        let Self { left, top, right, bottom, .. } = *self;
        let mut ticks: Vec<(f64, &String)> = self.chart.y.ticks.iter().map(|(at, text)| (self.y(*at), text)).collect();
        ticks.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut free_below = f64::MAX;
        for (y, text) in ticks {
            canvas.add(format_args!("<path class=\"grid\" d=\"M{left:.1} {y:.1}H{right:.1}\"/>"))?;
            if y <= free_below {
                free_below = y - LINE_HEIGHT;
                canvas.text("", (left - 7.0, y + 4.0), Anchor::Right, text)?;
            }
        }
        let mut free_from = f64::MIN;
        for (at, text) in &self.chart.x.ticks {
            let x = self.x(*at);
            canvas.add(format_args!("<path class=\"grid\" d=\"M{x:.1} {top:.1}V{bottom:.1}\"/>"))?;
            let half = text.lines().map(width).fold(0.0, f64::max) / 2.0;
            // A first label that is wider than the labels at the left begins at the edge of the
            // picture.
            let middle = x.max(half + 1.0);
            if middle - half < free_from {
                continue;
            }
            free_from = middle + half + 8.0;
            for (nth, line) in text.lines().enumerate() {
                let y = bottom + 18.0 + nth as f64 * LINE_HEIGHT;
                canvas.text(if nth == 0 { "" } else { "minor" }, (middle, y), Anchor::Middle, line)?;
            }
        }
        canvas.add(format_args!("<path class=\"axis\" d=\"M{left:.1} {top:.1}V{bottom:.1}H{right:.1}\"/>"))?;
        let legend = self.legend.as_ref().map_or(0.0, |it| it.height(self.series.len()));
        let middle = ((left + right) / 2.0, self.height - legend - 6.0);
        canvas.text("minor", middle, Anchor::Middle, &self.chart.x.label)?;
        // Above its axis, so that the letters need not be turned.
        let above = 6.0 + self.heading.len() as f64 * HEADING_HEIGHT + 12.0;
        canvas.text("minor", (4.0, above), Anchor::Left, &self.chart.y.label)
    }

    /// Lines for a value of y and of x, and the front.
    fn guides(&self, canvas: &mut Canvas) -> fmt::Result {
        let Self { left, top, right, bottom, .. } = *self;
        if let Some((at, _)) = &self.chart.level {
            let y = self.y(*at);
            canvas.add(format_args!("<path class=\"guide\" d=\"M{left:.1} {y:.1}H{right:.1}\"/>"))?;
        }
        if let Some((at, _)) = &self.chart.moment {
            let x = self.x(*at);
            canvas.add(format_args!("<path class=\"guide\" d=\"M{x:.1} {top:.1}V{bottom:.1}\"/>"))?;
        }
        if let Some(((x, y), rest)) = self.chart.front.split_first() {
            let steps = rest.iter().map(|(x, y)| format!("H{:.1}V{:.1}", self.x(*x), self.y(*y)));
            let (x, y, steps) = (self.x(*x), self.y(*y), steps.collect::<String>());
            canvas.add(format_args!("<path class=\"front\" d=\"M{x:.1} {y:.1}{steps}H{right:.1}\"/>"))?;
        }
        Ok(())
    }

    /// The names of these, over the lines.
    fn guide_names(&self, canvas: &mut Canvas) -> fmt::Result {
        if let Some((at, text)) = &self.chart.level {
            let y = self.y(*at);
            let y = if y - self.top < LINE_HEIGHT { y + LINE_HEIGHT } else { y - 5.0 };
            canvas.text("over", (self.right - 6.0, y), Anchor::Right, text)?;
        }
        if let Some((at, text)) = &self.chart.moment {
            let half = width(text) / 2.0;
            let x = self.x(*at).clamp(half + 2.0, self.width - half - 2.0);
            canvas.text("minor", (x, self.top - 10.0), Anchor::Middle, text)?;
        }
        Ok(())
    }

    fn line(&self, canvas: &mut Canvas, series: &Series) -> fmt::Result {
        let place = |(nth, point): (usize, &Point)| {
            format!("{}{:.1} {:.1}", if nth == 0 { 'M' } else { 'L' }, self.x(point.x), self.y(point.y))
        };
        let path: String = series.points.iter().enumerate().map(place).collect();
        let (colour, stroke, name) = (series.look.colour, stroke(series.look), escaped(&series.name));
        canvas.add(format_args!("<path class=\"line s-{colour}\"{stroke} d=\"{path}\"><title>{name}</title></path>"))
    }

    fn marks(&self, canvas: &mut Canvas, series: &Series) -> fmt::Result {
        let (look, colour) = (series.look, series.look.colour);
        let size = if look.weight == Weight::Ours { 5.6 } else { 4.4 };
        series.points.iter().try_for_each(|point| {
            let shape = shape(look.marker, self.x(point.x), self.y(point.y), size);
            let about = escaped(&point.about);
            canvas.add(format_args!("<path class=\"mark f-{colour}\" d=\"{shape}\"><title>{about}</title></path>"))
        })
    }

    /// The names of all lines or points: beside them, or in a list below.
    fn names(&self, canvas: &mut Canvas) -> fmt::Result {
        if let Some(legend) = &self.legend {
            return self.list(canvas, legend);
        }
        for (series, label) in self.series.iter().zip(self.labels()) {
            if let Some(((x1, y1), (x2, y2))) = label.leader {
                canvas.add(format_args!("<path class=\"leader\" d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\"/>"))?;
            }
            canvas.text(class(series.look), (label.text.0, label.text.1 + 4.0), Anchor::Left, &series.name)?;
        }
        Ok(())
    }

    /// Returns the places of the names beside lines or points.
    fn labels(&self) -> Vec<Label> {
        if self.chart.kind == Kind::Points {
            let point =
                |it: &&'a Series| it.points.first().map(|at| (self.x(at.x), self.y(at.y), bold_width(&it.name)));
            let points: Vec<_> = self.series.iter().filter_map(point).collect();
            labels::around(&points, (self.left, self.top, self.width, self.bottom))
        } else {
            let end = |it: &&Series| it.points.last().map(|at| (self.x(at.x), self.y(at.y)));
            let ends: Vec<_> = self.series.iter().filter_map(end).collect();
            labels::beside(&ends, self.right + 20.0, (self.top, self.bottom))
        }
    }

    fn list(&self, canvas: &mut Canvas, legend: &Legend) -> fmt::Result {
        let top = self.height - legend.height(self.series.len()) + LINE_HEIGHT;
        for (nth, series) in self.series.iter().enumerate() {
            let x = 4.0 + (nth % legend.columns) as f64 * legend.column;
            let y = top + (nth / legend.columns) as f64 * (LINE_HEIGHT + 3.0);
            let (look, colour, middle) = (series.look, series.look.colour, y - 4.0);
            let stroke = stroke(look);
            canvas.add(format_args!("<path class=\"sample s-{colour}\"{stroke} d=\"M{x:.1} {middle:.1}h27\"/>"))?;
            if self.chart.kind == Kind::Lines {
                let shape = shape(look.marker, x + 13.5, middle, 4.4);
                canvas.add(format_args!("<path class=\"mark f-{colour}\" d=\"{shape}\"/>"))?;
            }
            canvas.text(class(look), (x + Legend::SAMPLE, y), Anchor::Left, &series.name)?;
        }
        Ok(())
    }
}

/// The class of a name.
fn class(look: Look) -> &'static str {
    match look.weight {
        Weight::Ours => "ours",
        Weight::Normal => "",
        Weight::Background => "minor",
    }
}

/// Width and dashes of a line, as attributes.
fn stroke(look: Look) -> String {
    let dashes = if look.dashes.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{}\"", look.dashes) };
    format!(" stroke-width=\"{}\"{dashes}", look.width())
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
