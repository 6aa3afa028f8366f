// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules about comments in Rust sources: how wide they are, and how doc comments begin.
//!
//! Old comments that break them are counted in [`super::debts`].

use super::debts::Debt;
use crate::files::File;

/// The most columns of a line that is a comment.
const COLUMNS: usize = 100;

/// A doc comment that begins with one of these can't be read alone: it has no subject, or it leans
/// on its neighbour.
const LEANING: [&str; 5] = ["The same", "Or", "It", "One", "Nor"];

pub(super) const WIDE: &str = "wide-comments";
pub(super) const BEGINNINGS: &str = "doc-beginnings";

pub(super) fn count(files: &[File]) -> Vec<Debt> {
    let sources = files.iter().filter(|file| file.path.ends_with(".rs"));
    sources.flat_map(|file| [debt(file, WIDE, wide(&file.text)), debt(file, BEGINNINGS, leaning(&file.text))]).collect()
}

fn debt(file: &File, rule: &'static str, lines: Vec<usize>) -> Debt {
    let what = match rule {
        WIDE => format!("comments wider than {COLUMNS} columns"),
        _ => format!("doc comments that begin with {}", LEANING.map(|word| format!("\"{word}\"")).join(", ")),
    };
    let lines: Vec<String> = lines.iter().map(usize::to_string).collect();
    Debt {
        rule,
        path: file.path.clone(),
        count: lines.len(),
        allowed: 0,
        what: format!("{what} in lines {}", lines.join(", ")),
    }
}

/// The numbers of comment lines that are too wide; an address can't be broken and may be.
pub(crate) fn wide(text: &str) -> Vec<usize> {
    let too_wide =
        |line: &str| line.trim_start().starts_with("//") && !line.contains("://") && line.chars().count() > COLUMNS;
    (1..).zip(text.lines()).filter(|(_, line)| too_wide(line)).map(|(number, _)| number).collect()
}

/// The numbers of the first lines of doc comments that lean on something else.
fn leaning(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut inside = false;
    for (number, line) in (1..).zip(text.lines().map(str::trim_start)) {
        let said = ["/// ", "//! "].iter().find_map(|mark| line.strip_prefix(mark));
        if let Some(said) = said.filter(|_| !inside) {
            let ends = |rest: &str| !rest.starts_with(char::is_alphanumeric);
            if LEANING.iter().any(|word| said.strip_prefix(word).is_some_and(ends)) {
                found.push(number);
            }
        }
        inside = line.starts_with("///") || line.starts_with("//!");
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_wide_beyond_a_hundred_columns() {
        let line = |columns: usize| format!("// {}", "x".repeat(columns - 3));
        assert_eq!(wide(&format!("{}\n{}\n    {}\n", line(100), line(101), line(97))), [2, 3]);
        let code = format!("let x = 1; {}\n// https://{}\n", line(100), "x".repeat(100));
        assert_eq!(wide(&code), Vec::<usize>::new());
    }

    #[test]
    fn the_beginning_of_a_doc_comment_stands_alone() {
        for bad in ["/// It is.", "    /// The same, for lanes.", "//! Or else.", "/// One.", "x\n/// Nor that."] {
            assert_eq!(leaning(bad).len(), 1, "{bad}");
        }
        for good in ["/// Items are.", "/// Oneself.", "// It is.", "/// A lane.\n/// It has a log.", "/// \u{20}It"] {
            assert_eq!(leaning(good), Vec::<usize>::new(), "{good}");
        }
    }
}
