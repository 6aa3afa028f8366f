// SPDX-License-Identifier: MIT OR Apache-2.0
//! How numbers and errors look to people (12.3 MiB, 1,234,567, 97.1 %, a bar, 1 h 2 min), and how
//! they get to stdout.
//!
//! Sizes and counts are those of `flashfront_units`. Durations that an operator writes are read by
//! the crate humantime. What is printed has two units at most, so that columns stay narrow (1 h 2
//! min): humantime prints all units down to nanoseconds.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, IsTerminal};
use std::path::Path;

use anyhow::Context;
use flashfront_engine::BLOCK_SECTORS;
use flashfront_serve::report::LostRange;
pub(crate) use flashfront_units::{bytes, count, counted};

use crate::columns::WIDTH;

/// Blocks of 4 KiB as a size.
pub(crate) fn blocks(count: u64) -> String {
    bytes(count.saturating_mul(flashfront_engine::BLOCK_BYTES))
}

/// A share in percent; a dash if there is none.
pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

/// Draws a share as a bar of `width` characters.
pub(crate) fn bar(share: f64, width: usize) -> String {
    let full = (share.clamp(0.0, 1.0) * width as f64).round() as usize;
    format!("[{}{}]", "#".repeat(full), ".".repeat(width - full))
}

/// A latency.
pub(crate) fn latency(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{:.1} us", ns as f64 / 1e3),
        10_000..1_000_000 => format!("{} us", ns / 1000),
        1_000_000..10_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        10_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// A span of time, in its two largest units.
pub(crate) fn span(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// Tells an error with its causes, but for causes that the error before already tells.
pub(crate) fn error(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |told, cause| match cause.to_string() {
        cause if told.contains(&cause) => told,
        cause if told.is_empty() => cause,
        cause => format!("{told}: {cause}"),
    })
}

/// Lost blocks, a line for each range.
pub(crate) fn lost(word: &str, ranges: &[LostRange]) -> String {
    let line = |it: &LostRange| {
        format!("{word:<11} volume {}, {} sectors from {}\n", it.origin, it.blocks * BLOCK_SECTORS, it.lba)
    };
    ranges.iter().map(line).collect()
}

/// Text on one line: a name or a path can have any character, and must not look like lines of ours.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let escaped = |it: char| if it.is_control() { it.escape_default().to_string() } else { it.to_string() };
    Cow::Owned(text.chars().map(escaped).collect())
}

/// A path as a shell takes it for one word.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    if text.contains(char::is_control) {
        return format!("$'{}'", one_line(&text.replace('\\', r"\\").replace('\'', r"\'")));
    }
    let plain = |it: char| it.is_ascii_alphanumeric() || "/._-+:@%,=".contains(it);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// Stdout could not be written to. A daemon's socket can be a broken pipe as well.
#[derive(Debug)]
struct Stdout;

impl fmt::Display for Stdout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stdout")
    }
}

/// Whether the reader of our output has gone.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    error.is::<Stdout>() && error.downcast_ref::<io::Error>().is_some_and(broken)
}

/// Lets a verb whose exit code is a verdict go on to it, though the reader of the text has gone.
pub(crate) fn read_or_not(printed: anyhow::Result<()>) -> anyhow::Result<()> {
    printed.or_else(|error| if is_broken_pipe(&error) { Ok(()) } else { Err(error) })
}

/// Writes JSON whose fractions have six significant digits: no figure here is measured more
/// exactly.
struct SixDigits;

impl serde_json::ser::Formatter for SixDigits {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        serde_json::ser::CompactFormatter.write_f64(writer, six_digits(value))
    }
}

/// A number rounded to six significant digits.
fn six_digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// A value as one line of JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> anyhow::Result<String> {
    let mut text = Vec::new();
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut text, SixDigits))?;
    text.push(b'\n');
    Ok(String::from_utf8(text)?)
}

/// Prints a value as one line of JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    print(&json(value)?)
}

/// Prints text for people: in a terminal with long lines folded.
pub(crate) fn tell(text: &str) -> anyhow::Result<()> {
    if io::stdout().is_terminal() { print(&folded(text)) } else { print(text) }
}

/// Text with no line longer than 80 columns, if words allow that. A line with a label goes on below
/// its text. What is to be copied into a shell stays whole.
fn folded(text: &str) -> String {
    const LABEL: usize = 12;
    let mut out = String::new();
    for line in text.lines() {
        let has_label =
            line.split_at_checked(LABEL).is_some_and(|(label, rest)| label.ends_with("  ") && !rest.starts_with(' '));
        let indent = if has_label { " ".repeat(LABEL) } else { String::new() };
        let is_command = line.starts_with("next ");
        let mut width = 0;
        for (nth, word) in line.split(' ').enumerate() {
            let len = word.chars().count();
            if nth > 0 && !is_command && width > indent.len() && width + 1 + len > WIDTH {
                out.truncate(out.trim_end_matches(' ').len());
                out += "\n";
                out += &indent;
                width = indent.len();
            } else if nth > 0 {
                out.push(' ');
                width += 1;
            }
            out += word;
            width += len;
        }
        out.push('\n');
    }
    out
}

/// Prints text as it is.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    use std::io::Write;
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context(Stdout)
}

/// Says that the origin of a volume has another size than the volume.
pub(crate) fn resized(volume: &str, size_bytes: u64, origin_bytes: u64) -> String {
    let told = bytes(origin_bytes);
    match origin_bytes > size_bytes {
        true => format!("the origin is larger than the volume ({told}): flashfront volume grow {volume}"),
        false => format!("the origin is smaller than the volume ({told}): its end is gone; give it its size again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_folded_between_words() {
        let words = "word ".repeat(20);
        let text = format!("note        {words}end\n{words}end\nnext        {words}end\nshort\n  two\n");
        let folded = folded(&text);
        let lines: Vec<&str> = folded.lines().collect();
        assert!(lines[1].starts_with("            word") && lines[3].starts_with("word"), "{folded}");
        assert_eq!(lines.iter().filter(|line| line.chars().count() > 80).count(), 1, "a command stays whole: {folded}");
        assert!(folded.ends_with("end\nshort\n  two\n"), "{folded}");
        let all = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(all(&folded), all(&text), "no word is lost");
        assert!(lines.iter().all(|line| !line.ends_with(' ')), "{folded:?}");
    }

    #[test]
    fn paths_are_one_word_for_a_shell() {
        for (path, text) in [("/dev/sdb", "/dev/sdb"), ("/my disk", "'/my disk'"), ("it's", r"'it'\''s'")] {
            assert_eq!(quoted(Path::new(path)), text);
        }
    }

    #[test]
    fn what_is_no_text_is_shown_as_such() {
        assert_eq!(one_line("/a\nready\u{1b}[2J"), r"/a\nready\u{1b}[2J");
        assert_eq!(quoted(Path::new("/it's\n")), r"$'/it\'s\n'");
    }

    #[test]
    fn bars_are_as_wide_as_asked() {
        assert_eq!(bar(0.0, 4), "[....]");
        assert_eq!(bar(0.5, 4), "[##..]");
        assert_eq!(bar(7.0, 4), "[####]");
    }

    #[test]
    fn latencies_and_spans_choose_their_unit() {
        assert_eq!(latency(900), "0.9 us");
        assert_eq!(latency(80_000), "80 us");
        assert_eq!(latency(8_120_000), "8.12 ms");
        assert_eq!(latency(120_000_000), "120.0 ms");
        assert_eq!(span(59), "59 s");
        assert_eq!(span(3600), "1 h 0 min");
        assert_eq!(span(90_000), "1 d 1 h");
    }

    #[test]
    fn json_has_six_digits_of_a_fraction() {
        let told = |value: f64| json(&value).unwrap();
        assert_eq!(told(0.857_812_345_678_9), "0.857812\n");
        assert_eq!(told(1_221.333_333), "1221.33\n");
        assert_eq!((&*told(12.0), &*told(0.0), &*told(1.5e-9)), ("12.0\n", "0.0\n", "1.5e-9\n"));
    }

    #[test]
    fn no_cause_is_told_twice() {
        let cause = io::Error::from(io::ErrorKind::NotFound);
        let told = format!("/x: {cause}");
        let inner = anyhow::Error::new(cause).context(told.clone()).context("serving");
        assert_eq!(error(&inner), format!("serving: {told}"));
    }

    #[test]
    fn a_closed_pipe_is_recognised() {
        let broken = || anyhow::Error::new(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(is_broken_pipe(&broken().context(Stdout).context("printing")));
        assert!(!is_broken_pipe(&broken().context("a daemon's socket")), "that one is worth a message");
        assert!(!is_broken_pipe(&anyhow::anyhow!("else")));
    }
}
