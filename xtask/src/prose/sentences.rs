// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sentences of a Markdown text.
//!
//! Prose is the text of paragraphs, quotations and list items. Headings, tables, code blocks, HTML
//! and mdBook's directives are left out. A sentence ends at a full stop, a question mark or an
//! exclamation mark before a space. It also ends with its paragraph or list item. A colon or a
//! semicolon ends none. A code span and the text of a link count as a reader sees them: the span is
//! one word, the link's address none.

/// A sentence, and where its paragraph or list item begins.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sentence {
    /// The line, from 1.
    pub(crate) line: usize,
    pub(crate) words: usize,
    pub(crate) text: String,
}

/// Words that end with a full stop and end no sentence.
const ABBREVIATIONS: [&str; 9] = ["e.g.", "i.e.", "vs.", "etc.", "cf.", "al.", "No.", "p.", "approx."];

/// Returns all sentences, in order.
pub(crate) fn of(text: &str) -> Vec<Sentence> {
    let mut sentences = Vec::new();
    for (line, paragraph) in paragraphs(text) {
        for sentence in split(&visible(&paragraph)) {
            // A sign alone, like a dash, is no word.
            let words = sentence.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
            if words > 0 {
                sentences.push(Sentence { line, words, text: sentence });
            }
        }
    }
    sentences
}

/// Paragraphs and list items, each joined to one line, with the number of its first line.
fn paragraphs(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    // The fence that ends the code block we are in.
    let mut fence: Option<String> = None;
    // Whether the next line of text goes on with the last paragraph.
    let mut open = false;
    for (number, whole) in (1..).zip(text.lines()) {
        let line = whole.trim().trim_start_matches('>').trim_start();
        if let Some(end) = &fence {
            if line.starts_with(end.as_str()) {
                fence = None;
            }
            continue;
        }
        if let Some(mark) = ["```", "~~~"].into_iter().find(|mark| line.starts_with(mark)) {
            fence = Some(mark.to_owned());
            open = false;
            continue;
        }
        if line.is_empty() || is_no_prose(line) {
            open = false;
            continue;
        }
        let (text, begins) = match item(line) {
            Some(text) => (text, true),
            None => (line, !open),
        };
        match found.last_mut().filter(|_| !begins) {
            Some((_, paragraph)) => {
                paragraph.push(' ');
                paragraph.push_str(text);
            }
            None => found.push((number, text.to_owned())),
        }
        open = true;
    }
    found
}

/// Headings, rows of tables, HTML, mdBook's directives, and rules.
fn is_no_prose(line: &str) -> bool {
    let heading = line.trim_start_matches('#').len() < line.len() && line.trim_start_matches('#').starts_with(' ');
    let after_angle = line.strip_prefix('<').and_then(|rest| rest.chars().next());
    let html = after_angle.is_some_and(|c| c.is_ascii_alphabetic() || c == '/' || c == '!');
    heading || html || ["|", "{{#", "---", "==="].iter().any(|mark| line.starts_with(mark))
}

/// The text of a list item that begins on this line.
fn item(line: &str) -> Option<&str> {
    let after_number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered =
        after_number.len() < line.len() && (after_number.starts_with(". ") || after_number.starts_with(") "));
    let bulleted = ["- ", "* ", "+ "].iter().any(|bullet| line.starts_with(bullet));
    let text = if numbered { after_number.get(2..) } else { line.get(2..).filter(|_| bulleted) };
    text.map(str::trim_start)
}

/// The text as a reader sees it: code spans as one word, links without their address.
fn visible(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['`', ']', '[', '!']) {
        let (before, from) = rest.split_at(at);
        shown.push_str(before);
        if from.starts_with('`') {
            let ticks: String = from.chars().take_while(|c| *c == '`').collect();
            let inside = from.get(ticks.len()..).unwrap_or_default();
            match inside.split_once(ticks.as_str()) {
                Some((code, after)) => {
                    // A full stop inside the span must not end the sentence: any blank becomes a
                    // sign.
                    shown.push_str(&code.trim().replace(char::is_whitespace, "\u{b7}"));
                    rest = after;
                }
                None => rest = inside,
            }
        } else if from.starts_with("](") {
            rest = from.split_once(')').map_or("", |(_, after)| after);
        } else if from.starts_with("![") || from.starts_with('[') || from.starts_with(']') {
            rest = from.trim_start_matches('!').get(1..).unwrap_or_default();
        } else {
            shown.push('!');
            rest = from.get(1..).unwrap_or_default();
        }
    }
    shown.push_str(rest);
    shown
}

/// Cuts a paragraph after each word that ends a sentence.
fn split(paragraph: &str) -> Vec<String> {
    let mut sentences = vec![Vec::new()];
    for word in paragraph.split_whitespace() {
        if let Some(sentence) = sentences.last_mut() {
            sentence.push(word);
        }
        if ends_sentence(word) {
            sentences.push(Vec::new());
        }
    }
    sentences.into_iter().filter(|words| !words.is_empty()).map(|words| words.join(" ")).collect()
}

fn ends_sentence(word: &str) -> bool {
    let word = word.trim_end_matches(['"', '\'', ')', '*', '_', '\u{201d}']);
    let bare = word.trim_start_matches(['"', '\'', '(', '*', '_']);
    let initial = bare.len() == 2 && bare.starts_with(char::is_uppercase);
    word.ends_with(['.', '!', '?']) && !word.ends_with("..") && !initial && !ABBREVIATIONS.contains(&bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<usize> {
        of(text).iter().map(|sentence| sentence.words).collect()
    }

    #[test]
    fn sentences_go_over_lines_and_end_with_their_paragraph() {
        assert_eq!(words("One two\nthree four. Five\nsix\n\nseven eight nine\n"), [4, 2, 3]);
        assert_eq!(words("Is it so? Yes! (It is.) \"Good.\" **End.** x"), [3, 1, 2, 1, 1, 1]);
    }

    #[test]
    fn list_items_and_quotations_are_sentences() {
        assert_eq!(
            words("Three things:\n- one\n- two words\n  and more\n10. a last one\n\n> quoted\n> text\n"),
            [2, 1, 4, 3, 2]
        );
    }

    #[test]
    fn headings_tables_code_and_html_are_left_out() {
        let text = "# A heading\nbefore\n```\ncode. more code.\n```\nafter it\n| a | b |\n|---|---|\n<br>\n{{#include x.md}}\n~~~sh\nx\n~~~\n";
        assert_eq!(words(text), [1, 2]);
    }

    #[test]
    fn a_code_span_is_one_word_and_an_address_none() {
        assert_eq!(words("Run `flashfront serve --x. Y` now.\n"), [3]);
        assert_eq!(words("See [the user's guide](docs/a.md#b) and ![a picture](x.svg).\n"), [7]);
        assert_eq!(words("``a ` b`` ends. An open ` tick\n"), [2, 3]);
    }

    #[test]
    fn what_looks_like_an_end_and_is_none() {
        assert_eq!(words("P. Hajkazemi et al. measured 1.5 times, e.g. version 0.1.0 - and ... so on"), [13]);
    }

    #[test]
    fn a_colon_or_semicolon_ends_no_sentence() {
        assert_eq!(words("first: second; third (fourth)"), [4]);
    }
}
