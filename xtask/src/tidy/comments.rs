// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules about comments in Rust sources: how wide they are, how long their sentences are, and how
//! doc comments begin.
//!
//! Old comments that break them are counted in [`super::debts`].

use super::debts::Debt;
use crate::files::File;
use crate::prose::sentences;

/// The most columns of a line that is a comment.
const COLUMNS: usize = 100;

/// The most words of a sentence in a comment.
const WORDS: usize = 25;

/// A doc comment that begins with one of these can't be read alone: it has no subject, or it leans
/// on its neighbour.
const LEANING: [&str; 15] = [
    "The same", "Or", "It", "One", "Nor", "Who", "Whoever", "Whose", "Whom", "So many", "So much", "Those", "Else",
    "Of", "Nobody's",
];

pub(super) const WIDE: &str = "wide-comments";
pub(super) const BEGINNINGS: &str = "doc-beginnings";
pub(super) const SENTENCES: &str = "comment-sentences";

pub(super) fn count(files: &[File]) -> Vec<Debt> {
    let sources = files.iter().filter(|file| file.path.ends_with(".rs"));
    let rules = |file: &File| {
        [(WIDE, wide(&file.text)), (BEGINNINGS, leaning(&file.text)), (SENTENCES, long(&file.text))]
            .map(|(rule, lines)| debt(file, rule, lines))
    };
    sources.flat_map(rules).collect()
}

fn debt(file: &File, rule: &'static str, lines: Vec<usize>) -> Debt {
    let what = match rule {
        WIDE => format!("comments wider than {COLUMNS} columns"),
        SENTENCES => format!("comments with a sentence of more than {WORDS} words"),
        _ => "doc comments that begin with a word like \"It\", \"Who\" or \"Those\"".to_owned(),
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

/// The numbers of the first lines of comments, once for each sentence that is too long.
fn long(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    for (first, comment) in comments(text) {
        let sentences = sentences::of(&comment);
        found.extend(sentences.iter().filter(|sentence| sentence.words > WORDS).map(|_| first));
    }
    found
}

/// The comments of a source, without their marks: neighbouring lines with the same mark are one.
/// Each has the number of its first line.
fn comments(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut before = "";
    for (number, line) in (1..).zip(text.lines().map(str::trim_start)) {
        let mark = ["///", "//!", "//"].into_iter().find(|mark| line.starts_with(mark)).unwrap_or_default();
        if !mark.is_empty() {
            let said = line[mark.len()..].strip_prefix(' ').unwrap_or(&line[mark.len()..]);
            match found.last_mut().filter(|_| mark == before) {
                Some((_, comment)) => {
                    comment.push('\n');
                    comment.push_str(said);
                }
                None => found.push((number, said.to_owned())),
            }
        }
        before = mark;
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
    fn a_sentence_of_a_comment_goes_over_lines_and_has_25_words_at_most() {
        let words = |count: usize| vec!["word"; count].join(" ");
        let text = format!("/// {}\n/// {}.\nlet x = 1;\n// {}. {}.\n", words(13), words(13), words(25), words(25));
        assert_eq!(long(&text), [1], "26 words in lines 1 and 2");
        let apart = format!("/// {}\n///\n/// {}\n//! {}\n", words(20), words(20), words(20));
        assert_eq!(long(&apart), Vec::<usize>::new(), "paragraphs and other marks are apart");
        assert_eq!(long(&format!("// ```\n// {}\n// ```\n", words(30))), Vec::<usize>::new(), "code is no sentence");
    }

    #[test]
    fn the_beginning_of_a_doc_comment_stands_alone() {
        for bad in [
            "/// Who waits.",
            "/// Of each lane.",
            "/// It is.",
            "    /// The same, for lanes.",
            "//! Or else.",
            "/// One.",
            "x\n/// Nor that.",
        ] {
            assert_eq!(leaning(bad).len(), 1, "{bad}");
        }
        for good in ["/// Items are.", "/// Oneself.", "// It is.", "/// A lane.\n/// It has a log.", "/// \u{20}It"] {
            assert_eq!(leaning(good), Vec::<usize>::new(), "{good}");
        }
    }
}
