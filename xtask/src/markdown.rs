// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads what tasks need of Markdown: links and headings, outside of code.
//!
//! The reader knows fences, code spans, inline links and definitions. It knows no HTML and no code
//! by indentation.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

/// A link: `[text](target)`, or `[name]: target`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// The line, from 1.
    pub(crate) line: usize,
    /// The range of the text in the file; nothing for a definition.
    pub(crate) text: Option<Range<usize>>,
    /// The range of the target in the file.
    pub(crate) target: Range<usize>,
}

/// Finds all links of a text, in their order.
pub(crate) fn links(text: &str) -> Vec<Link> {
    let mut links = Vec::new();
    for Line { number, start, line } in prose(text) {
        let masked = without_code(line);
        for (at, _) in masked.match_indices("](") {
            let target = target(&masked, at + 2, ')');
            links.extend(target.map(|target| {
                let text = opening(&masked, at).map(|open| start + open + 1..start + at);
                Link { line: number, text, target: start + target.start..start + target.end }
            }));
        }
        if let Some(at) = masked.find("]: ").filter(|_| masked.starts_with('[')) {
            let end = masked.get(at + 3..).and_then(|rest| rest.find(' ')).map_or(line.len(), |end| at + 3 + end);
            links.push(Link { line: number, text: None, target: start + at + 3..start + end });
        }
    }
    links
}

/// The anchors of all headings, as GitHub and mdBook name them.
pub(crate) fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for Line { line, .. } in prose(text) {
        if let Some(heading) = heading(line) {
            let name = anchor(heading);
            // The second heading of one name gets `-1` behind it, the third `-2`.
            let numbered = (1..).map(|number| format!("{name}-{number}"));
            let free = std::iter::once(name.clone()).chain(numbered).find(|name| !anchors.contains(name));
            anchors.extend(free);
        }
    }
    anchors
}

/// Resolves `path`, as the file `from` names it, to a path from the root. A path that leaves the
/// repository keeps its `..`, and is not found.
pub(crate) fn resolve(from: &str, path: &str) -> String {
    let mut resolved = Path::new(from).parent().map(Path::to_path_buf).unwrap_or_default();
    for component in Path::new(path).components() {
        match component {
            Component::ParentDir if resolved.parent().is_some() => {
                resolved.pop();
            }
            Component::CurDir => {}
            other => resolved.push(other),
        }
    }
    PathBuf::from_iter(resolved.components()).to_string_lossy().into_owned()
}

/// A line outside of fences.
struct Line<'a> {
    number: usize,
    /// The place in the file where the line begins.
    start: usize,
    line: &'a str,
}

fn prose(text: &str) -> impl Iterator<Item = Line<'_>> {
    let mut fence: Option<&str> = None;
    let mut next = 0;
    (1..).zip(text.split_inclusive('\n')).filter_map(move |(number, line)| {
        let start = next;
        next += line.len();
        let line = line.trim_end();
        let mark = ["```", "~~~"].into_iter().find(|mark| line.trim_start().starts_with(mark));
        match (fence, mark) {
            (None, None) => return Some(Line { number, start, line }),
            (None, begin) => fence = begin,
            (Some(open), Some(end)) if open == end => fence = None,
            (Some(_), _) => {}
        }
        None
    })
}

/// The line with blanks for every byte of its code spans.
fn without_code(line: &str) -> String {
    let mut masked = String::with_capacity(line.len());
    let closed = line.matches('`').count() / 2 * 2;
    for (index, part) in line.split('`').enumerate() {
        if index > 0 {
            masked.push('`');
        }
        if index % 2 == 1 && index < closed {
            masked.extend(std::iter::repeat_n(' ', part.len()))
        } else {
            masked.push_str(part)
        }
    }
    masked
}

/// Returns the range from `start` to `end`, or to the blank before a title.
fn target(line: &str, start: usize, end: char) -> Option<Range<usize>> {
    let rest = line.get(start..)?;
    let whole = rest.get(..rest.find(end)?)?;
    let target = whole.split(' ').next().filter(|target| !target.is_empty())?;
    Some(start..start + target.len())
}

/// Finds the bracket that `]` at `close` ends.
fn opening(line: &str, close: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in line.bytes().enumerate().take(close).collect::<Vec<_>>().into_iter().rev() {
        match byte {
            b']' => depth += 1,
            b'[' if depth == 0 => return Some(at),
            b'[' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The text of a heading, if the line is one.
fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    ((1..=6).contains(&level) && text.starts_with(' ')).then(|| text.trim())
}

/// Small letters, digits, hyphens and underscores; hyphens for spaces. The targets of links in a
/// heading are left out.
fn anchor(heading: &str) -> String {
    let mut parts = heading.split("](");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    let mut anchor = String::new();
    for character in text.chars() {
        match character {
            ' ' => anchor.push('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => anchor.extend(c.to_lowercase()),
            _ => {}
        }
    }
    anchor
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(usize, Option<&str>, &str)> {
        links(text).into_iter().map(|link| (link.line, link.text.map(|at| &text[at]), &text[link.target])).collect()
    }

    #[test]
    fn links_are_found_with_their_texts() {
        let text = "é [a [b]](c.md \"t\") and [`d`](#e)\n[f]: g.md h\n";
        assert_eq!(found(text), [(1, Some("a [b]"), "c.md"), (1, Some("`d`"), "#e"), (2, None, "g.md")]);
    }

    #[test]
    fn code_has_no_links() {
        let text = "`[a](b)` [c](d)\n```sh\n[e](f)\n~~~\n```\n~~~\n[g](h)\n~~~\n[i](j) `\n";
        assert_eq!(found(text), [(1, Some("c"), "d"), (9, Some("i"), "j")]);
    }

    #[test]
    fn headings_have_the_anchors_of_github() {
        let text = "# One `two`: [three](b.md)\n## X\n## X\n```\n# y\n```\n#no\n";
        assert_eq!(anchors(text).into_iter().collect::<Vec<_>>(), ["one-two-three", "x", "x-1"]);
    }

    #[test]
    fn paths_are_resolved_from_the_file() {
        assert_eq!(resolve("docs/a/b.md", "../c.md"), "docs/c.md");
        assert_eq!(resolve("docs/b.md", "./a/"), "docs/a");
        assert_eq!(resolve("b.md", "../c.md"), "../c.md");
    }
}
