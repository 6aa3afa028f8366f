// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the program says is in the book: users find each message in *When something fails*.

use std::path::Path;
use std::sync::OnceLock;

/// Each warning and each error of a daemon's log has an entry.
#[track_caller]
pub(crate) fn assert_log_is_told(log: &str) {
    let is_bad = |line: &&str| line.contains("WARN ") || line.contains("ERROR ");
    let untold: Vec<&str> = log.lines().filter(is_bad).filter(|line| !is_told(line)).collect();
    assert!(untold.is_empty(), "docs/trouble/messages/ has no entry for {untold:#?}");
}

/// Whether a user who looks for the message finds it in the book's part *When something fails*.
pub(crate) fn is_told(said: &str) -> bool {
    static QUOTES: OnceLock<Vec<String>> = OnceLock::new();
    let quotes = QUOTES.get_or_init(|| {
        let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/trouble/messages");
        let pages = std::fs::read_dir(pages).expect("the book is beside the sources");
        let pages = pages.map(|page| std::fs::read_to_string(page.expect("a page").path()).expect("a page is text"));
        let quotes = pages.flat_map(|page| page.lines().filter_map(quoted).collect::<Vec<_>>());
        quotes.collect()
    });
    // What clap says is told in the text of a page.
    said.starts_with("error: ") || quotes.iter().any(|quote| in_order(quote, said))
}

/// The message that a line of an entry quotes; short ones could stand in any other.
fn quoted(line: &str) -> Option<String> {
    let quote = line.strip_prefix("- `")?.trim_matches(['`', ' ']);
    (quote.chars().filter(|it| it.is_alphabetic()).count() >= 10).then(|| quote.to_owned())
}

/// Whether what stands between the `…` of a quote is in a text, one after another.
fn in_order(quote: &str, text: &str) -> bool {
    let mut rest = text;
    quote.split('…').map(|words| words.trim_matches([' ', '`'])).all(|words| {
        rest.find(words).is_some_and(|at| {
            rest = &rest[at + words.len()..];
            true
        })
    })
}
