// SPDX-License-Identifier: MIT OR Apache-2.0
//! An SVG picture while it is drawn. It remembers where its texts are, so that tests can tell
//! whether any collide.

use std::fmt::{self, Write};

use super::page::escaped;
use super::style::{HEADING_PX, TEXT_PX};

/// Left, top, right, bottom.
pub(super) type Frame = (f64, f64, f64, f64);

/// The side of a text that its place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Left,
    Middle,
    Right,
}

/// A picture that grows.
#[derive(Debug, Default)]
pub(super) struct Canvas {
    elements: String,
    texts: Vec<(String, Frame)>,
}

/// How wide a text of the usual size is about. No browser is asked, so the widest of the fonts
/// named counts.
pub(super) fn width(text: &str) -> f64 {
    text.chars().map(|c| letter(c) * TEXT_PX).sum()
}

/// How wide a text is in bold letters.
pub(super) fn bold_width(text: &str) -> f64 {
    width(text) * BOLD
}

/// Bold letters are this many times as wide.
const BOLD: f64 = 1.12;

/// How wide a heading is.
pub(super) fn heading_width(text: &str) -> f64 {
    text.chars().map(|c| letter(c) * BOLD * HEADING_PX).sum()
}

/// The width of a letter by its height, in DejaVu Sans.
fn letter(c: char) -> f64 {
    match c {
        'i' | 'j' | 'l' | '.' | ',' | ' ' | '\'' | ':' | '|' | '-' | '/' | 'I' => 0.34,
        'm' | 'w' | 'M' | 'W' | '%' | '@' | '…' => 0.98,
        'A'..='Z' => 0.72,
        _ => 0.636,
    }
}

/// Cuts a heading into lines of at most `room` pixels.
pub(super) fn wrapped(heading: &str, room: f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in heading.split(' ') {
        let line = lines.last_mut().expect("there is always one");
        let longer = if line.is_empty() { word.to_owned() } else { format!("{line} {word}") };
        if line.is_empty() || heading_width(&longer) <= room {
            *line = longer;
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

impl Canvas {
    /// Adds elements as they are.
    pub(super) fn add(&mut self, elements: fmt::Arguments<'_>) -> fmt::Result {
        self.elements.write_fmt(elements)?;
        self.elements.write_char('\n')
    }

    /// Adds a text whose baseline is at `y`.
    pub(super) fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) -> fmt::Result {
        let (wide, high) = match class {
            "heading" => (heading_width(text), HEADING_PX),
            "ours" => (bold_width(text), TEXT_PX),
            _ => (width(text), TEXT_PX),
        };
        let (left, anchor) = match anchor {
            Anchor::Left => (x, ""),
            Anchor::Middle => (x - wide / 2.0, " text-anchor=\"middle\""),
            Anchor::Right => (x - wide, " text-anchor=\"end\""),
        };
        self.texts.push((text.to_owned(), (left, y - high * 0.78, left + wide, y + high * 0.24)));
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        self.add(format_args!("<text{class} x=\"{x:.1}\" y=\"{y:.1}\"{anchor}>{}</text>", escaped(text)))
    }

    /// The picture as an element of this width and height.
    pub(super) fn svg(self, class: &str, title: &str, (width, height): (f64, f64)) -> String {
        let (title, elements) = (escaped(title), self.elements);
        format!(
            "<svg class=\"{class}\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" \
             role=\"img\" aria-label=\"{title}\">\n{elements}</svg>\n"
        )
    }

    /// Returns the texts and their places.
    #[cfg(test)]
    pub(super) fn texts(&self) -> &[(String, Frame)] {
        &self.texts
    }
}

/// The area that two frames have in common.
pub(super) fn shared(a: Frame, b: Frame) -> f64 {
    let wide = (a.2.min(b.2) - a.0.max(b.0)).max(0.0);
    let high = (a.3.min(b.3) - a.1.max(b.1)).max(0.0);
    wide * high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_heading_has_several_lines_and_all_its_words() {
        let heading = "Blocks read from the origin for each that had to be, since the beginning";
        let lines = wrapped(heading, 300.0);
        assert!(lines.len() > 1 && lines.iter().all(|line| heading_width(line) <= 300.0), "{lines:?}");
        assert_eq!(lines.join(" "), heading);
        assert_eq!(wrapped("a-word-that-is-wider-than-the-room", 30.0).len(), 1);
    }

    #[test]
    fn texts_are_where_they_are_anchored() {
        let mut canvas = Canvas::default();
        for anchor in [Anchor::Left, Anchor::Middle, Anchor::Right] {
            canvas.text("", (100.0, 50.0), anchor, "abcd").unwrap();
        }
        let lefts: Vec<f64> = canvas.texts().iter().map(|it| it.1.0).collect();
        assert_eq!(lefts, [100.0, 100.0 - width("abcd") / 2.0, 100.0 - width("abcd")]);
    }
}
