// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults that a reader of a chart would notice: texts that collide, lines without a name, names
//! without a line.

use super::*;
use crate::sim::report::axis::{Scale, plain};
use crate::sim::report::canvas::shared;
use crate::sim::report::look;
use crate::sim::report::style::TEXT_PX;

fn series(name: &str, values: &[f64]) -> Series {
    let points = values.iter().zip(0..).map(|(y, x)| Point { x: f64::from(x), y: *y, about: String::new() });
    Series { name: name.to_owned(), look: look::of_policy(name), points: points.collect() }
}

fn axis(label: &str, values: &[f64]) -> Axis {
    Axis::around(label, values.iter().copied(), |it| format!("{it:.1} GiB"))
}

const POLICIES: [&str; 9] = ["flashfront", "lru", "fifo", "clock", "arc", "s3fifo", "wtinylfu", "smq", "belady"];

/// Charts that have what may collide: long titles, guides at the edges, lines that end together,
/// points side by side.
fn charts() -> Vec<Chart> {
    let together = POLICIES.map(|name| series(name, &[1.0, 40.0, 50.0]));
    let long = "Blocks read from the origin for each that had to be, since the beginning of the first round";
    let lines =
        |kind| Chart::new(long, kind, (axis("size", &[0.0, 2.0]), axis("hits", &[0.0, 60.0])), together.to_vec());
    let guided = |at: f64, level: f64| Chart {
        level: Some((level, "disk alone, 134.1 ms".to_owned())),
        moment: Some((at, "advised".to_owned())),
        ..lines(Kind::Lines)
    };
    let beside = POLICIES.iter().zip(0..);
    let beside = beside.map(|(name, nth)| Series {
        points: vec![Point { x: f64::from(nth % 3) / 10.0, y: 20.0 + f64::from(nth), about: String::new() }],
        ..series(name, &[])
    });
    let two_lines = Axis {
        label: "size of the cache".to_owned(),
        scale: Scale::Log,
        low: 0.9,
        high: 2.1,
        ticks: [1.0, 1.02, 1.5, 2.0].map(|at| (at, format!("{at:.2} MiB\n{at} %"))).into(),
    };
    vec![
        guided(0.0, 60.0),
        guided(2.0, 0.0),
        lines(Kind::Curves),
        Chart { x: two_lines, ..lines(Kind::Lines) },
        Chart { y: Axis::from_nothing("MB/s", &[0.0, 0.001, 5000.0], plain), ..lines(Kind::Curves) },
        Chart::new(long, Kind::Points, (axis("written", &[0.0, 1.0]), axis("hits", &[0.0, 60.0])), beside.collect()),
        Chart::new("empty", Kind::Curves, (axis("", &[]), axis("", &[])), Vec::new()),
    ]
}

/// Both pictures of a chart: its canvas and its size.
fn drawn(chart: &Chart) -> [(Canvas, (f64, f64)); 2] {
    [Window::Wide, Window::Narrow].map(|window| Drawing::of(chart, window).draw().unwrap())
}

#[test]
fn no_text_covers_another_or_leaves_the_picture() {
    for chart in charts() {
        for (canvas, (width, height)) in drawn(&chart) {
            let texts = canvas.texts();
            for (nth, (text, area)) in texts.iter().enumerate() {
                let inside = area.0 >= 0.0 && area.1 >= 0.0 && area.2 <= width + 0.5 && area.3 <= height + 0.5;
                assert!(inside, "{text:?} at {area:?} leaves {width} x {height} of {chart:?}");
                for (other, that) in &texts[..nth] {
                    assert!(
                        shared(*area, *that) == 0.0,
                        "{text:?} covers {other:?} in {width} x {height} of {chart:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn each_line_has_a_name_and_each_name_a_line() {
    for chart in charts() {
        for (canvas, size) in drawn(&chart) {
            for series in &chart.series {
                let named = canvas.texts().iter().filter(|it| it.0 == series.name).count();
                assert_eq!(named, 1, "{} in {chart:?}", series.name);
            }
            let svg = canvas.svg("", "", size);
            let (lines, marks) = (svg.matches("class=\"line ").count(), svg.matches("class=\"mark ").count());
            let drawn = if chart.kind == Kind::Points { marks } else { lines };
            assert_eq!(drawn, chart.series.len(), "{chart:?}");
        }
    }
}

/// Lines that lie on one another: each next one is narrower, or has gaps through which the one
/// below is seen.
#[test]
fn a_line_below_others_can_be_seen() {
    for chart in charts().iter().filter(|it| it.kind != Kind::Points) {
        for window in [Window::Wide, Window::Narrow] {
            let series = Drawing::of(chart, window).series;
            for pair in series.windows(2) {
                let (below, above) = (pair[0].look, pair[1].look);
                let seen = above.width() < below.width() || !above.dashes.is_empty();
                assert!(seen, "{} is hidden by {}", pair[0].name, pair[1].name);
            }
        }
    }
}

#[test]
fn letters_are_large_enough_where_a_picture_is_shown() {
    for chart in charts() {
        let [(_, wide), (_, narrow)] = drawn(&chart);
        // In the smallest window that gets it: between the margins of the page.
        let scale = |room: f64, (width, _): (f64, f64)| (room / width).min(1.0);
        assert!(scale(800.0 - 32.0, wide) * TEXT_PX >= 11.0 && scale(360.0 - 24.0, narrow) * TEXT_PX >= 11.0);
    }
}

#[test]
fn nothing_is_drawn_outside_of_the_frame() {
    let chart = &charts()[4];
    let drawing = Drawing::of(chart, Window::Wide);
    for value in [0.0, 1e-9, 1.0, 1e9] {
        let y = drawing.y(value);
        assert!((drawing.top..=drawing.bottom).contains(&y), "{value} at {y}");
    }
}
