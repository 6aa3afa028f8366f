// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules about each Rust source by itself.
//!
//! They read lines, not syntax: simple, fast, and wrong only where a line looks like what it isn't.

use super::finding::Finding;
use crate::files::File;

const SPDX: &str = "// SPDX-License-Identifier: MIT OR Apache-2.0";

/// Lines of code without tests: above the first a warning, above the second a failure.
const LINES_WARN: usize = 500;
const LINES_MAX: usize = 800;

/// Files above [`LINES_MAX`] and their lengths. The list and its numbers may only shrink.
const LONG: [(&str, usize); 0] = [];

/// Words for which the glossary has another one; looked for in the sources of our own crates only.
/// What models or recognises other systems speaks their words.
const SYNONYMS: [(&str, &str); 7] = [
    ("backing device", "origin"),
    ("core device", "origin"),
    ("caching device", "cache device"),
    ("dirty page", "dirty block"),
    ("write-back", "writeback"),
    ("write-through", "writethrough"),
    ("write-around", "writearound"),
];

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    files.iter().filter(|file| file.path.ends_with(".rs")).flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let first = file.text.lines().next().unwrap_or_default();
    if first != SPDX {
        findings.push(Finding::new(&file.path, 1, format!("the first line must be: {SPDX}")));
    }
    let about = file.text.lines().nth(1).unwrap_or_default();
    if !about.starts_with("//! ") && !file.path.ends_with("/tests.rs") {
        findings.push(Finding::new(&file.path, 2, "say in `//!` lines what this file does"));
    }
    let tests_from = tests_from(file);
    findings.extend(length(file));
    for (number, line) in (1..).zip(file.text.lines()) {
        let mut found = |text: String| findings.push(Finding::new(&file.path, number, text));
        if let Some(word) = unfinished(line) {
            found(format!("no {word} in the tree: do it, or open an issue"));
        }
        if line.contains(concat!("[", "allow(")) {
            found("use #[expect(lint, reason = \"...\")]: it tells when it is no longer needed".into());
        }
        if let Some((synonym, word)) = synonym(&file.path, line) {
            found(format!("\"{synonym}\" is called \"{word}\" here (glossary in ARCHITECTURE.md)"));
        }
        if number >= tests_from {
            if line.contains(concat!("sle", "ep(")) && !line.contains("// pacing: ") {
                found("tests wait for what they need, not for time; else say why: `// pacing: ...`".into());
            }
        } else if line.contains(concat!("unwrap_", "unchecked")) || says_nothing(line) {
            found("say in expect(\"...\") why it can't fail".into());
        }
    }
    findings
}

/// The number of the first line of test code; past the end if there is none.
fn tests_from(file: &File) -> usize {
    if is_test_file(&file.path) {
        return 1;
    }
    let lines: Vec<&str> = file.text.lines().collect();
    // `mod tests;` has its code elsewhere; a single `use` for tests ends nothing either.
    let cut = lines.windows(2).position(|pair| {
        pair[0] == concat!("#[cfg", "(test)]") && pair[1].starts_with("mod ") && pair[1].ends_with('{')
    });
    cut.map_or(usize::MAX, |index| index + 1)
}

/// Whether a path says that there is nothing but tests.
pub(crate) fn is_test_file(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// The lines of a file without its tests.
pub(crate) fn lines_of_code(file: &File) -> usize {
    file.text.lines().count().min(tests_from(file) - 1)
}

fn length(file: &File) -> Option<Finding> {
    let lines = lines_of_code(file);
    let allowed = LONG.iter().find(|(path, _)| *path == file.path).map_or(LINES_MAX, |(_, lines)| *lines);
    if lines > allowed {
        let text = format!("{lines} lines of code, at most {allowed}: cut it by what its parts hold");
        return Some(Finding::new(&file.path, 0, text));
    }
    if lines > LINES_WARN {
        return Some(Finding::warning(&file.path, format!("{lines} lines of code; aim for 100 to 300")));
    }
    None
}

fn unfinished(line: &str) -> Option<&'static str> {
    [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")]
        .into_iter()
        .find(|word| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|it| it == *word))
}

fn synonym(path: &str, line: &str) -> Option<(&'static str, &'static str)> {
    let ours = path.starts_with("crates/")
        && path.contains("/src/")
        && !["/rival/", "/probe/"].iter().any(|it| path.contains(it));
    let line = if ours { line.to_ascii_lowercase() } else { String::new() };
    SYNONYMS.into_iter().find(|(synonym, _)| line.contains(synonym))
}

/// An `expect` of one word or none gives no reason; it dodges the lint against `unwrap`.
fn says_nothing(line: &str) -> bool {
    let reason = line.split_once(concat!(".exp", "ect(\"")).and_then(|(_, rest)| rest.split_once('"'));
    reason.is_some_and(|(reason, _)| !reason.trim().contains(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, body: &str) -> Vec<String> {
        let file = File { path: path.into(), text: format!("{SPDX}\n//! A file.\n{body}") };
        check_file(&file).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn a_good_file_has_no_findings() {
        assert_eq!(findings("crates/a/src/x.rs", "fn f() {}\n"), Vec::<String>::new());
    }

    #[test]
    fn each_rule_finds_what_it_looks_for() {
        let bad = [
            ("crates/a/src/x.rs", concat!("// TO", "DO: later")),
            ("crates/a/src/x.rs", concat!("#[", "allow(dead_code)]")),
            ("crates/a/src/x.rs", "// The write-back mode."),
            ("crates/a/src/x.rs", concat!("x.exp", "ect(\"bug\");")),
            ("crates/a/tests/x.rs", concat!("thread::sle", "ep(second);")),
        ];
        for (path, line) in bad {
            assert_eq!(findings(path, line).len(), 1, "{path}: {line}");
        }
    }

    #[test]
    fn what_tests_may_do_is_no_finding() {
        let good = [
            ("crates/a/tests/x.rs", concat!("thread::sle", "ep(tick); // pacing: a poll")),
            ("crates/a/src/x/tests.rs", concat!("x.exp", "ect(\"bug\");")),
            ("crates/sim/src/rival/bcache.rs", "// bcache calls it write-back."),
        ];
        for (path, line) in good {
            assert_eq!(findings(path, line), Vec::<String>::new(), "{path}: {line}");
        }
    }

    #[test]
    fn tests_do_not_count_as_lines_of_code() {
        let code = "fn f() {}\n".repeat(LINES_WARN - 2);
        let tests = format!("{}{}", concat!("#[cfg", "(test)]\nmod tests {\n"), "fn t() {}\n".repeat(LINES_MAX));
        assert_eq!(findings("crates/a/src/x.rs", &format!("{code}{tests}")), Vec::<String>::new());
        let more = "fn f() {}\n".repeat(LINES_MAX);
        assert_eq!(findings("crates/a/src/x.rs", &more).len(), 1);
    }

    #[test]
    fn the_first_lines_are_wanted() {
        let file = File { path: "xtask/src/x.rs".into(), text: "fn main() {}\n".into() };
        assert_eq!(check_file(&file).len(), 2);
    }
}
