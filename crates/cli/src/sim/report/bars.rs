// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bars in groups, as SVG: a group for each job, a bar for each target, with its spread as
//! whiskers. Drawn twice, as a [chart](super::chart) is, for wide and for narrow windows.

use std::fmt;

use super::axis::{Axis, Scale};
use super::canvas::{Anchor, Canvas, bold_width, width, wrapped};

/// A bar.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) colour: &'static str,
    pub(super) is_ours: bool,
    pub(super) value: f64,
    /// The least and the largest of the values that this one is the median of.
    pub(super) spread: Option<(f64, f64)>,
    /// The value as it is told.
    pub(super) told: String,
}

/// Bars that are compared.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) bars: Vec<Bar>,
}

/// A picture of groups, one below the other.
#[derive(Clone, Debug)]
pub(super) struct Bars {
    pub(super) title: String,
    pub(super) axis: Axis,
    pub(super) groups: Vec<Group>,
}

/// The height of a bar, and what a bar takes with the gap below it.
const BAR: f64 = 13.0;
const ROW: f64 = 19.0;
const GROUP_HEAD: f64 = 26.0;
const GROUP_GAP: f64 = 8.0;
const HEADING: f64 = 19.0;
/// Names longer than this part of the picture are cut.
const NAME_SHARE: f64 = 0.38;

impl Bars {
    /// The picture as two `svg` elements, of which a window shows the one that suits it.
    pub(super) fn svg(&self) -> Result<String, fmt::Error> {
        let draw = |wide: f64, class: &str| {
            let (canvas, size) = self.draw(wide)?;
            Ok::<_, fmt::Error>(canvas.svg(class, &self.title, size))
        };
        Ok(draw(860.0, "for-wide")? + &draw(336.0, "for-narrow")?)
    }

    fn draw(&self, wide: f64) -> Result<(Canvas, (f64, f64)), fmt::Error> {
        let bars = || self.groups.iter().flat_map(|group| &group.bars);
        let names = bars().map(|bar| bold_width(&bar.name)).fold(0.0, f64::max);
        let left = (names + 8.0).min(wide * NAME_SHARE).max(20.0);
        let told = bars().map(|bar| bold_width(&bar.told)).fold(0.0, f64::max);
        let right = wide - told - 12.0;
        let heading = wrapped(&self.title, wide - 8.0);
        let top = 6.0 + heading.len() as f64 * HEADING + 4.0;
        let rows = bars().count() as f64 * ROW + self.groups.len() as f64 * (GROUP_HEAD + GROUP_GAP);
        let bottom = top + rows;
        let mut canvas = Canvas::default();
        for (nth, line) in heading.iter().enumerate() {
            canvas.text("heading", (4.0, 17.0 + nth as f64 * HEADING), Anchor::Left, line)?;
        }
        let x = |value: f64| left + self.axis.share(value) * (right - left);
        self.grid(&mut canvas, &x, (top, bottom))?;
        let mut y = top;
        for group in &self.groups {
            y += GROUP_HEAD;
            canvas.text("ours", (4.0, y - 9.0), Anchor::Left, &cut(&group.name, wide - 8.0))?;
            for bar in &group.bars {
                one(&mut canvas, bar, left, &x, y)?;
                y += ROW;
            }
            y += GROUP_GAP;
        }
        let legend =
            format!("{}{}", self.axis.label, if self.axis.scale == Scale::Log { " (logarithmic)" } else { "" });
        canvas.text("minor", ((left + right) / 2.0, bottom + 34.0), Anchor::Middle, &legend)?;
        Ok((canvas, (wide, bottom + 42.0)))
    }

    fn grid(&self, canvas: &mut Canvas, x: &impl Fn(f64) -> f64, (top, bottom): (f64, f64)) -> fmt::Result {
        let mut free_from = f64::MIN;
        for (at, text) in &self.axis.ticks {
            let x = x(*at);
            canvas.add(format_args!("<path class=\"grid\" d=\"M{x:.1} {top:.1}V{bottom:.1}\"/>"))?;
            let half = width(text) / 2.0;
            if x - half >= free_from {
                canvas.text("", (x, bottom + 16.0), Anchor::Middle, text)?;
                free_from = x + half + 8.0;
            }
        }
        let left = x(self.axis.low);
        canvas.add(format_args!("<path class=\"axis\" d=\"M{left:.1} {top:.1}V{bottom:.1}\"/>"))
    }
}

/// A bar, its whiskers, its name and its value.
fn one(canvas: &mut Canvas, bar: &Bar, left: f64, x: &impl Fn(f64) -> f64, y: f64) -> fmt::Result {
    let (middle, end, colour) = (y + BAR / 2.0, x(bar.value).max(left + 1.0), bar.colour);
    let class = if bar.is_ours { "ours" } else { "" };
    canvas.text(class, (left - 6.0, middle + 4.0), Anchor::Right, &cut(&bar.name, left - 8.0))?;
    canvas.add(format_args!(
        "<rect class=\"f-{colour}\" x=\"{left:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR}\"/>",
        end - left
    ))?;
    let mut last = end;
    if let Some((least, largest)) = bar.spread {
        let (from, to) = (x(least), x(largest));
        last = last.max(to);
        let (top, bottom) = (middle - 4.0, middle + 4.0);
        canvas.add(format_args!(
            "<path class=\"axis\" d=\"M{from:.1} {middle:.1}H{to:.1}M{from:.1} {top:.1}V{bottom:.1}M{to:.1} \
             {top:.1}V{bottom:.1}\"/>"
        ))?;
    }
    canvas.text(class, (last + 6.0, middle + 4.0), Anchor::Left, &bar.told)
}

/// A name without its end, if there is no room for it.
fn cut(name: &str, room: f64) -> String {
    if bold_width(name) <= room {
        return name.to_owned();
    }
    let mut short = String::new();
    for letter in name.chars() {
        short.push(letter);
        if bold_width(&short) + bold_width("…") > room {
            short.pop();
            break;
        }
    }
    short + "…"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::report::axis::plain;
    use crate::sim::report::canvas::shared;

    #[test]
    fn no_texts_collide_and_none_leaves_the_picture() {
        let bar = |name: &str, value: f64| Bar {
            name: name.to_owned(),
            colour: "blue",
            is_ours: name == "cached",
            value,
            spread: Some((value * 0.9, value * 1.1)),
            told: format!("{value:.0}"),
        };
        let group = |name: &str| Group {
            name: name.to_owned(),
            bars: vec![
                bar("cached", 91_000.0),
                bar("/dev/disk/by-id/ata-WDC_WD4000FYYZ-01UL1B0_WD-WCC130000000", 361.0),
                bar("ssd", 99_000.0),
            ],
        };
        let axis = Axis::from_nothing("requests a second", &[361.0, 108_900.0], plain);
        let groups = vec![group("random reads, 4 KiB, 32 in flight, of a rather long name"), group("b")];
        let bars = Bars { title: "Requests a second".to_owned(), axis, groups };
        for wide in [860.0, 336.0] {
            let (canvas, (right, bottom)) = bars.draw(wide).unwrap();
            let texts = canvas.texts();
            assert!(texts.iter().any(|it| it.0 == "91000") && texts.iter().any(|it| it.0.ends_with('…')));
            for (nth, (text, frame)) in texts.iter().enumerate() {
                assert!(frame.0 >= 0.0 && frame.2 <= right && frame.3 <= bottom, "{wide}: {text}: {frame:?}");
                for (other, that) in &texts[..nth] {
                    assert!(shared(*frame, *that) < 4.0, "{wide}: {text}, {other}");
                }
            }
        }
    }
}
