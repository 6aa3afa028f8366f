// SPDX-License-Identifier: MIT OR Apache-2.0
//! The entries of the book's part *When something fails*: which messages each one explains.
//!
//! An entry begins with a heading `###`. Below it are the messages, one a line: "- `text`". `…` in
//! the text stands for what differs each time, or for words that are left out. Then come a
//! paragraph `**Means:**` and a paragraph `**Do:**`.

use super::super::finding::Finding;
use super::said::PART;
use crate::files::File;

/// A line of an entry that quotes a message.
pub(super) struct Quote {
    pub(super) path: String,
    pub(super) line: usize,
    pub(super) text: String,
}

/// A quote that shortens a message has this many of its letters at least.
const LETTERS_MIN: usize = 10;

impl Quote {
    /// Counts the letters of this line that are the message's, if a reader who looks for the
    /// message finds it.
    ///
    /// A quote may be longer than the message, as most messages are printed with the operation
    /// before them, and the cause behind them. Or it may be shorter.
    pub(super) fn tells(&self, message: &str) -> Option<usize> {
        let own = letters(&self.text);
        if own >= LETTERS_MIN && in_order(&self.text, message) {
            return Some(own);
        }
        in_order(message, &self.text).then(|| letters(message))
    }

    /// Whether the program still prints a line with `told` letters in messages. The rest of a line
    /// may come from the kernel, or be filled in.
    pub(super) fn is_printed(&self, told: usize) -> bool {
        told > 0 && 2 * told >= letters(&self.text)
    }
}

fn letters(text: &str) -> usize {
    text.chars().filter(|it| it.is_alphabetic()).count()
}

/// Whether the words of `text` between its parts that differ are in `other`, one after another.
fn in_order(text: &str, other: &str) -> bool {
    let mut rest = other;
    text.split(PART).map(|words| words.trim_matches([' ', ':', ';', ',', '.'])).all(|words| {
        match rest.split_once(words) {
            Some((_, after)) => {
                rest = after;
                true
            }
            None => false,
        }
    })
}

/// The quotes of a page, and what is wrong with its entries.
pub(super) fn on_page(page: &File) -> (Vec<Quote>, Vec<Finding>) {
    let (mut quotes, mut findings) = (Vec::new(), Vec::new());
    // The line of the entry's heading, how many quotes it has, and whether it says what they mean
    // and what to do.
    let mut entry: Option<(usize, usize, [bool; 2])> = None;
    let mut end = |entry: &Option<(usize, usize, [bool; 2])>| match entry {
        Some((line, 0, _)) => findings.push(Finding::new(&page.path, *line, "quote the message: a line - `message`")),
        Some((line, _, [means, to_do])) if !means || !to_do => {
            let text = "say below the messages what they mean (**Means:**) and what to do (**Do:**)";
            findings.push(Finding::new(&page.path, *line, text));
        }
        _ => {}
    };
    for (number, line) in (1..).zip(page.text.lines()) {
        if line.starts_with('#') {
            end(&entry);
            entry = line.starts_with("### ").then_some((number, 0, [false; 2]));
        } else if let Some((_, count, [means, to_do])) = &mut entry {
            *means |= line.starts_with("**Means:**");
            *to_do |= line.starts_with("**Do:**");
            if let Some(text) = quoted(line).filter(|_| !*means) {
                *count += 1;
                quotes.push(Quote { path: page.path.clone(), line: number, text: text.to_owned() });
            }
        }
    }
    end(&entry);
    (quotes, findings)
}

/// The text of a line of the list that is nothing but code.
fn quoted(line: &str) -> Option<&str> {
    let code = line.strip_prefix("- ")?;
    [("`` ", " ``"), ("``", "``"), ("`", "`")]
        .into_iter()
        .find_map(|(open, close)| code.strip_prefix(open)?.strip_suffix(close))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> File {
        File { path: "docs/trouble/x.md".into(), text: text.into() }
    }

    #[test]
    fn a_quote_tells_a_message_that_is_longer_or_shorter() {
        let quote = |text: &str| Quote { path: String::new(), line: 1, text: text.into() };
        let whole = quote("can't open … : it is damaged; restore it");
        assert_eq!(whole.tells("it is damaged"), Some(11));
        assert!(whole.tells("can't open …: …; restore it").is_some());
        assert_eq!(whole.tells("it is damaged by …, restore"), None);
        assert_eq!(whole.tells("restore it: it is damaged"), None);
        assert!(whole.is_printed(18) && !whole.is_printed(11), "half of it was changed");
        let short = quote("device busy: … stop it…");
        assert!(short.tells("device busy: … is in use by …; stop it or unmount it first").is_some());
        assert_eq!(short.tells("device busy: … is in use"), None);
        assert_eq!(quote("…: …").tells("any thing at all: yes"), None);
    }

    #[test]
    fn entries_are_read() {
        let text = "# A\n- `not in an entry`\n### One\n- `first message`\n- `` a `second` one ``\n\n**Means:** x\n\n\
                    **Do:** y\n- `a command`\n";
        let (quotes, findings) = on_page(&page(text));
        assert_eq!(quotes.iter().map(|it| it.text.as_str()).collect::<Vec<_>>(), ["first message", "a `second` one"]);
        assert_eq!(findings, []);
    }

    #[test]
    fn an_entry_without_an_answer_is_found() {
        for text in ["### One\n- `message`\n\n**Means:** x\n## B\n", "### One\n**Means:** x\n\n**Do:** y\n"] {
            assert_eq!(on_page(&page(text)).1.len(), 1, "{text}");
        }
    }
}
