// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each message that the program can print has an entry in the book, and each entry's message can
//! be printed.
//!
//! `said` finds the messages in the sources, `told` the entries. What needs no entry is listed
//! here, with the reason.

mod said;
mod told;

use super::{File, Finding};
use said::Said;

/// The pages with the entries.
const PAGES: &str = "docs/trouble/messages/";

/// Where the program's sources are. Tools for those who work on Flashfront are not among them.
const SOURCES: &[&str] =
    &["crates/cli/src/", "crates/device/src/", "crates/engine/src/", "crates/serve/src/", "crates/sim/src/"];

/// Files that put their messages together from texts in variables. There each literal of four words
/// is a message.
const SPEAKERS: &[&str] = &[
    "crates/cli/src/check.rs",
    "crates/cli/src/destage.rs",
    "crates/cli/src/detach.rs",
    "crates/cli/src/drain.rs",
    "crates/cli/src/log.rs",
    "crates/cli/src/mirror.rs",
    "crates/cli/src/repair.rs",
    "crates/cli/src/serve.rs",
    "crates/device/src/real/file.rs",
    "crates/device/src/real/reactor.rs",
    "crates/device/src/wrap/inject/spec.rs",
    "crates/serve/src/control",
    "crates/serve/src/daemon/",
    "crates/serve/src/descriptors.rs",
    "crates/serve/src/failure.rs",
    "crates/serve/src/frontend/nbd/check.rs",
    "crates/serve/src/frontend/nbd/payload.rs",
    "crates/serve/src/frontend/nbd/reply.rs",
    "crates/serve/src/frontend/nbd/tls",
    "crates/serve/src/frontend/vhost_user_blk/attached.rs",
    "crates/serve/src/frontend/vhost_user_blk/private.rs",
    "crates/serve/src/offline/format.rs",
    "crates/serve/src/superblock.rs",
    "crates/sim/src/load/fio",
];

/// Files whose texts need no entry: the beginning of their paths, and why.
const SILENT: &[(&str, &str)] = &[
    ("crates/sim/src/prove/", "a program for those who work on Flashfront"),
    ("crates/sim/src/torture", "a program for those who work on Flashfront"),
    ("crates/sim/src/sweep", "a program for those who work on Flashfront"),
    ("crates/sim/src/oracle.rs", "a program for those who work on Flashfront"),
    ("crates/sim/src/panics.rs", "a program for those who work on Flashfront"),
    ("crates/engine/src/canary.rs", "a program for those who work on Flashfront"),
    ("crates/serve/src/frontend/nbd/client", "a client for tests and `try`: what it says of our own server is a bug"),
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
    (
        "crates/device/src/wrap/inject/spec.rs",
        "eio, nospace, readonly, unsupported, gone, timeout, stall, hang, short, flip, rot, misdirect, lost",
        "the list in two messages that have entries",
    ),
    ("crates/serve/src/daemon/reload.rs", ", with which clients are verified, too", GOOD_NEWS),
    ("crates/serve/src/daemon/reload.rs", "the certificates in ……", GOOD_NEWS),
    ("crates/serve/src/daemon/reload.rs", "the mode of … is …", GOOD_NEWS),
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
    let mut is_said = vec![false; quotes.len()];
    let mut is_used = vec![false; EXEMPT.len()];
    for file in files.iter().filter(|file| speaks(&file.path)) {
        let messages = said::in_source(&file.text, SPEAKERS.iter().any(|it| file.path.starts_with(it)));
        let messages = messages.unwrap_or_else(|error| {
            findings.push(Finding::new(&file.path, 0, error));
            Vec::new()
        });
        for Said { line, text } in messages {
            let mut has_entry = false;
            for (quote, is_said) in quotes.iter().zip(&mut is_said) {
                let tells = quote.tells(&text);
                (has_entry, *is_said) = (has_entry || tells, *is_said || tells);
            }
            let exempt = EXEMPT.iter().position(|(path, exempt, _)| *path == file.path && *exempt == text);
            match exempt {
                Some(at) if !has_entry => is_used[at] = true,
                None if !has_entry => {
                    let text = format!("no entry in {PAGES} quotes this message: {text}");
                    findings.push(Finding::new(&file.path, line, text));
                }
                _ => {}
            }
        }
    }
    for (quote, _) in quotes.iter().zip(is_said).filter(|(_, is_said)| !is_said) {
        let text = format!("the program prints no such message any more: {}", quote.text);
        findings.push(Finding::new(&quote.path, quote.line, text));
    }
    for ((path, text, _), _) in EXEMPT.iter().zip(is_used).filter(|(_, is_used)| !is_used) {
        let text = format!("take it off the list of messages without an entry: {text}");
        findings.push(Finding::new(path, 0, text));
    }
    findings
}

/// Whether the messages of this file are the program's.
fn speaks(path: &str) -> bool {
    SOURCES.iter().any(|it| path.starts_with(it))
        && path.ends_with(".rs")
        && !path.ends_with("/tests.rs")
        && !path.contains("/tests/")
        && !SILENT.iter().any(|(it, _)| path.starts_with(it))
}
