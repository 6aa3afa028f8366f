// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each message that the program can print has an entry in the book, and each entry's message can
//! be printed.
//!
//! `said` finds the messages in the sources, `told` the entries. What needs no entry is listed
//! here, with the reason.

mod said;
mod told;

use std::collections::BTreeMap;

use super::finding::Finding;
use crate::files::File;
use said::Said;

/// The pages with the entries.
const PAGES: &str = "docs/trouble/messages/";

/// The folders of the program's sources. Tools for work on Flashfront are not among them.
const SOURCES: &[&str] = &[
    "crates/bench/src/",
    "crates/bucket/src/",
    "crates/cli/src/",
    "crates/device/src/",
    "crates/engine/src/",
    "crates/nbd-proto/src/",
    "crates/record/src/",
    "crates/serve/src/",
    "crates/sim/src/",
    "crates/units/src/",
];

/// Files that put their messages together from texts in variables. There each literal of four words
/// is a message.
const SPEAKERS: &[&str] = &[
    "crates/bench/src/fill.rs",
    "crates/bench/src/safety.rs",
    "crates/cli/src/check.rs",
    "crates/cli/src/destage.rs",
    "crates/cli/src/detach.rs",
    "crates/cli/src/drain.rs",
    "crates/cli/src/log.rs",
    "crates/cli/src/mirror.rs",
    "crates/cli/src/repair.rs",
    "crates/cli/src/serve.rs",
    "crates/cli/src/trace/told.rs",
    "crates/device/src/real/file.rs",
    "crates/device/src/real/reactor.rs",
    "crates/device/src/wrap/inject/spec.rs",
    "crates/nbd-proto/src/server/check.rs",
    "crates/record/src/error.rs",
    "crates/record/src/kernel",
    "crates/serve/src/control",
    "crates/serve/src/daemon/",
    "crates/serve/src/descriptors.rs",
    "crates/serve/src/unaccepted.rs",
    "crates/serve/src/socket.rs",
    "crates/serve/src/failure.rs",
    "crates/serve/src/frontend/nbd/accept.rs",
    "crates/serve/src/frontend/nbd/ended.rs",
    "crates/serve/src/frontend/nbd/payload.rs",
    "crates/serve/src/frontend/mod.rs",
    "crates/serve/src/frontend/nbd/hold.rs",
    "crates/serve/src/frontend/nbd/read.rs",
    "crates/serve/src/frontend/nbd/tls",
    "crates/serve/src/frontend/ublk/hold.rs",
    "crates/serve/src/frontend/vhost_user_blk/broken.rs",
    "crates/serve/src/frontend/vhost_user_blk/files.rs",
    "crates/serve/src/frontend/vhost_user_blk/hold.rs",
    "crates/serve/src/frontend/vhost_user_blk/private.rs",
    "crates/serve/src/offline/format.rs",
    "crates/serve/src/origin_errors.rs",
    "crates/serve/src/storage.rs",
    "crates/serve/src/superblock.rs",
    "crates/serve/src/upgrade/predecessor.rs",
    "crates/serve/src/upgrade/successor.rs",
    "crates/sim/src/load/fio",
];

/// Files whose texts need no entry: the beginning of their paths, and why.
const SILENT: &[(&str, &str)] = &[
    ("crates/engine/src/fact/canary.rs", "a program for those who work on Flashfront"),
    ("crates/nbd-proto/src/blocking.rs", "a client for tests and `try`: what it says of our own server is a bug"),
    ("crates/nbd-proto/src/client", "a client for tests and `try`: what it says of our own server is a bug"),
    ("crates/nbd-proto/src/wire/", "a client for tests and `try`: what it says of our own server is a bug"),
];

/// Messages that need no entry: the file, the text, and why. The list only shrinks.
const EXEMPT: &[(&str, &str, &str)] = &[
    ("crates/cli/src/advise/told.rs", "without times, so each came when the one before it was answered", FIGURE),
    ("crates/cli/src/check.rs", "holds … in …, … of them dirty", FIGURE),
    ("crates/cli/src/check.rs", "log … to replay", FIGURE),
    ("crates/cli/src/destage.rs", "destaged: … written in … s; nothing is dirty, the origin is complete", GOOD_NEWS),
    ("crates/cli/src/detach.rs", "detached: … holds no cache any more; use … directly……", GOOD_NEWS),
    ("crates/cli/src/drain.rs", "drained: … written in … s; nothing is dirty", GOOD_NEWS),
    (
        "crates/cli/src/repair.rs",
        "repaired the next `flashfront serve` opens it; `flashfront check` shows it sound",
        GOOD_NEWS,
    ),
    ("crates/cli/src/repair.rs", "sound nothing to repair", GOOD_NEWS),
    ("crates/cli/src/repair.rs", "keeps … dirty, … clean; drops … clean, which the origin has", FIGURE),
    ("crates/cli/src/serve.rs", "stopped; the origin is complete", GOOD_NEWS),
    ("crates/cli/src/trace/told.rs", "; blocks begin at sector … modulo 8", FIGURE),
    ("crates/cli/src/trace/told.rs", ", as best for each of … disks", FIGURE),
    ("crates/cli/src/trace/told.rs", "; the page cache answered … reads of blocks", FIGURE),
    ("crates/cli/src/trace/told.rs", "to … of … disks, which have … of all,", FIGURE),
    (
        "crates/device/src/wrap/inject/spec.rs",
        "eio, nospace, readonly, unsupported, gone, timeout, stall, hang, short, flip, rot, misdirect, lost",
        "the list in two messages that have entries",
    ),
    ("crates/serve/src/config/shares.rs", "dirty age", FIGURE),
    ("crates/serve/src/daemon/reload.rs", ", with which clients are verified, too", GOOD_NEWS),
    ("crates/serve/src/daemon/reload.rs", "the certificates in ……", GOOD_NEWS),
    ("crates/serve/src/daemon/reload.rs", "the mode of … is …", GOOD_NEWS),
    ("crates/serve/src/daemon/reload.rs", "the limits of … are to be …", GOOD_NEWS),
    ("crates/serve/src/daemon/reload.rs", "… is to be added", GOOD_NEWS),
    (
        "crates/sim/src/trace/format/oracle_general.rs",
        "next access",
        "the name of a field, in messages that have an entry",
    ),
];

const GOOD_NEWS: &str = "good news";
const FIGURE: &str = "a figure of a report";

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut quotes = Vec::new();
    for page in files.iter().filter(|file| file.path.starts_with(PAGES)) {
        let (more, wrong) = told::on_page(page);
        quotes.extend(more);
        findings.extend(wrong);
    }
    let (messages, wrong) = messages(files);
    findings.extend(wrong);
    // How many letters of each quote are in messages.
    let mut told = vec![0; quotes.len()];
    let mut exempt: Vec<_> = EXEMPT.iter().collect();
    for (text, places) in &messages {
        let mut has_entry = false;
        for (quote, told) in quotes.iter().zip(&mut told) {
            if let Some(letters) = quote.tells(text) {
                has_entry = true;
                *told += letters;
            }
        }
        for (path, line) in places.iter().filter(|_| !has_entry) {
            match exempt.iter().position(|(in_file, words, _)| in_file == path && words == text) {
                Some(at) => drop(exempt.remove(at)),
                None => {
                    let text = format!("no entry in {PAGES} quotes this message: {text}");
                    findings.push(Finding::new(path, *line, text));
                }
            }
        }
    }
    for (quote, _) in quotes.iter().zip(told).filter(|(quote, told)| !quote.is_printed(*told)) {
        let text = format!("the program prints no such message any more: {}", quote.text);
        findings.push(Finding::new(&quote.path, quote.line, text));
    }
    for (path, text, _) in exempt {
        findings.push(Finding::new(path, 0, format!("take it off the list of messages without an entry: {text}")));
    }
    findings
}

/// Messages, each with the files and lines that print it.
type Messages<'a> = BTreeMap<String, Vec<(&'a str, usize)>>;

/// Collects all messages of the program, and faults in the lists of files.
fn messages(files: &[File]) -> (Messages<'_>, Vec<Finding>) {
    let mut messages = Messages::new();
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| speaks(&file.path)) {
        let all = SPEAKERS.iter().any(|it| file.path.starts_with(it));
        match said::in_source(&file.text, all) {
            Ok(said) => {
                for Said { line, text } in said {
                    messages.entry(text).or_default().push((&file.path, line));
                }
            }
            Err(error) => findings.push(Finding::new(&file.path, 0, error)),
        }
    }
    let lists = SPEAKERS.iter().chain(SILENT.iter().map(|(path, _)| path)).chain(SOURCES);
    for path in lists.filter(|path| !files.iter().any(|file| file.path.starts_with(**path))) {
        findings.push(Finding::new(path, 0, "no file begins so any more: take it off the lists of tidy's messages"));
    }
    (messages, findings)
}

/// Whether the messages of this file are the program's.
fn speaks(path: &str) -> bool {
    SOURCES.iter().any(|it| path.starts_with(it))
        && path.ends_with(".rs")
        && !path.ends_with("/tests.rs")
        && !path.contains("/tests/")
        && !SILENT.iter().any(|(it, _)| path.starts_with(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the findings in a source and a page, without those of the lists of real sources.
    fn found(source: &str, page: &str) -> Vec<String> {
        let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
        let files = [
            file("crates/cli/src/x.rs", source),
            file("crates/cli/src/tests/x.rs", source),
            file("docs/trouble/messages/x.md", page),
        ];
        let findings =
            check(&files).into_iter().filter(|it| !it.text.starts_with("take it off") && it.text.contains(':'));
        findings.filter(|it| !it.text.starts_with("no file")).map(|it| it.to_string()).collect()
    }

    const ENTRY: &str = "### Gone\n\n- `the device … is gone`\n\n**Means:** x\n\n**Do:** y\n";

    #[test]
    fn each_message_has_an_entry_and_each_entry_a_message() {
        let source = r#"fn f() { bail!("the device {path} is gone") }"#;
        assert_eq!(found(source, ENTRY), Vec::<String>::new());
        let unsaid = found(source, "");
        assert!(unsaid[0].starts_with("crates/cli/src/x.rs:1: no entry") && unsaid.len() == 1, "{unsaid:?}");
        let dead = found(r#"fn f() { bail!("{path}: is gone") }"#, ENTRY);
        assert!(dead[0].starts_with("docs/trouble/messages/x.md:3: the program prints no such"), "{dead:?}");
    }
}
