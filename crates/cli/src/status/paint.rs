// SPDX-License-Identifier: MIT OR Apache-2.0
//! Colours a finished table of the status, line by line: its columns are the same with and without.

use super::table::LABEL;
use crate::terminal::{Paint, Tone};

/// Labels of what is wrong.
const ALARMS: [&str; 9] =
    ["FAILED", "NO CACHE", "HANGS", "ALONE", "LACKING", "REFUSED", "CORRUPT", "LOST", "budget      used up"];

/// The table with colours, if there are any.
pub(super) fn painted(table: &str, paint: Paint) -> String {
    let lines = table.lines().enumerate().map(|(nth, text)| line(text, nth == 0, paint) + "\n");
    if paint.has_colours() { lines.collect() } else { table.to_owned() }
}

fn line(text: &str, is_first: bool, paint: Paint) -> String {
    if is_first {
        return paint.paint(Tone::Strong, text);
    }
    if ALARMS.iter().any(|alarm| text.starts_with(alarm)) {
        return paint.paint(Tone::Bad, text);
    }
    // A label is shorter than its column; what is longer is a word that goes on.
    let Some((label, rest)) = text.split_at_checked(LABEL).filter(|(label, _)| label.ends_with(' ')) else {
        return text.to_owned();
    };
    // Writers are slowed from nine tenths of what may be dirty.
    let is_near_the_limit = label.trim() == "dirty" && rest.starts_with(&format!("[{}", "#".repeat(27)));
    let tone = if is_near_the_limit { Tone::Warning } else { Tone::Good };
    paint.paint(Tone::Label, label) + &graph(rest, tone, paint)
}

/// The filled part of a bar, and the strokes of a history.
fn graph(text: &str, tone: Tone, paint: Paint) -> String {
    let is_drawn = |c: char| c == '#' || ('▁'..='█').contains(&c);
    let (mut out, mut rest) = (String::new(), text);
    while let Some(begin) = rest.find(is_drawn) {
        let (before, drawn) = rest.split_at(begin);
        let end = drawn.find(|c| !is_drawn(c)).unwrap_or(drawn.len());
        out += before;
        out += &paint.paint(tone, &drawn[..end]);
        rest = &drawn[end..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_change_no_letter() {
        let table = "flashfront 0.1.0  serving\nFAILED      drain\ncached      [##..] 1 of 2\nlast minute p50\n\n            x\n";
        assert_eq!(painted(table, Paint::with(false)), table);
        let coloured = painted(table, Paint::with(true));
        assert_eq!(anstream::adapter::strip_str(&coloured).to_string(), table);
        for part in ["\x1b[1m\x1b[31mFAILED      drain\x1b[0m", "[\x1b[32m##\x1b[0m..]", "\x1b[36mcached      \x1b[0m"]
        {
            assert!(coloured.contains(part), "{part:?} is missing in {coloured:?}");
        }
        let nearly = line(&format!("dirty       [{}...]", "#".repeat(27)), false, Paint::with(true));
        assert!(nearly.contains("\x1b[33m###"), "{nearly:?}");
    }
}
