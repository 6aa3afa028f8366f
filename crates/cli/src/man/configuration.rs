// SPDX-License-Identifier: MIT OR Apache-2.0
//! flashfront.toml(5): the page of the configuration file, made from its reference.
//!
//! The reference is TOML whose comments explain the keys below them. Each run of comments with the
//! keys below it becomes an entry of the page. A key in a comment has no value by default.

use clap_mangen::roff::{Roff, bold, roman};

use super::Page;

const ABOUT: &str = "configuration file of flashfront serve";

/// Comments, and the keys and headers of tables below them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Entry {
    prose: Vec<String>,
    settings: Vec<String>,
}

/// The page.
pub(super) fn page(reference: &str) -> Page {
    let mut roff = Roff::new();
    let source = format!("flashfront {}", env!("CARGO_PKG_VERSION"));
    roff.control("TH", ["FLASHFRONT.TOML", "5", "", &source, "Flashfront"]);
    roff.control("SH", ["NAME"]).text([roman(format!("flashfront.toml - {ABOUT}"))]);
    roff.control("SH", ["SYNOPSIS"]);
    roff.text([bold("flashfront serve --config"), roman(" FILE")]);
    roff.control("SH", ["DESCRIPTION"]);
    let mut table = String::new();
    let mut has_keys = false;
    for entry in entries(reference) {
        if entry.settings.is_empty() {
            // Text about the file as a whole comes before the first key.
            roff.text([roman(entry.prose.join("\n"))]);
            continue;
        }
        if !has_keys {
            roff.control("SH", ["KEYS"]);
            has_keys = true;
        }
        add(&entry, &mut table, &mut roff);
    }
    roff.control("SH", ["FILES"]);
    roff.control("TP", []).text([bold("/etc/flashfront/NAME.toml")]);
    roff.text([roman("The file of the services flashfront@NAME and flashfront-local@NAME of the Debian package.")]);
    roff.control("SH", ["EXAMPLES"]).text([roman("A disk behind an SSD, for clients of NBD on this machine:")]);
    roff.control("PP", []).control("EX", []);
    for line in EXAMPLE.lines() {
        roff.text([roman(line)]);
    }
    roff.control("EE", []);
    roff.control("SH", ["SEE ALSO"]).text([roman("flashfront-serve(1), flashfront-format(1), flashfront(1)")]);
    Page {
        words: vec!["flashfront.toml".to_owned()],
        name: "flashfront.toml".to_owned(),
        section: 5,
        text: roff.to_roff(),
    }
}

const EXAMPLE: &str = "\
cache = \"/dev/disk/by-id/nvme-fast-part4\"

[[volume]]
origin = \"/dev/disk/by-id/ata-slow\"

[[listen]]
nbd = \"unix:/run/flashfront/data/nbd.sock\"
";

/// Adds an entry. A header of a new table begins a part of the page.
fn add(entry: &Entry, table: &mut String, roff: &mut Roff) {
    let mut settings = &entry.settings[..];
    if let Some((header, rest)) = settings.split_first().filter(|(first, _)| is_header(first) && *first != table) {
        roff.control("SS", [header.as_str()]);
        table.clone_from(header);
        settings = rest;
    }
    let prose = entry.prose.join("\n");
    match settings {
        [] if prose.is_empty() => {}
        [] => {
            roff.text([roman(prose)]);
        }
        // Several tables of one kind are an example.
        _ if settings.iter().any(|line| is_header(line)) => {
            roff.control("PP", []).text([roman(prose)]);
            roff.control("PP", []).control("RS", []).control("EX", []);
            for line in settings {
                roff.text([roman(line.as_str())]);
            }
            roff.control("EE", []).control("RE", []);
        }
        [first, others @ ..] => {
            roff.control("TP", []).text([bold(first.as_str())]);
            for other in others {
                roff.control("TQ", []).text([bold(other.as_str())]);
            }
            roff.text([roman(prose)]);
        }
    }
}

/// The reference, cut where comments follow keys or an empty line.
fn entries(reference: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut entry = Entry::default();
    for line in reference.lines() {
        let comment = line.strip_prefix('#').map(str::trim);
        let setting =
            comment.map_or(Some(line).filter(|line| !line.is_empty()), |text| is_setting(text).then_some(text));
        if let Some(setting) = setting {
            entry.settings.push(setting.to_owned());
            continue;
        }
        if !entry.settings.is_empty() || comment.is_none() {
            entries.push(std::mem::take(&mut entry));
        }
        entry.prose.extend(comment.map(str::to_owned));
    }
    entries.push(entry);
    entries.retain(|entry| *entry != Entry::default());
    entries
}

/// Whether a comment is a key with its value, or the header of a table. Prose is no TOML, even if
/// its beginning looks like a key.
fn is_setting(text: &str) -> bool {
    !text.is_empty() && toml::from_str::<toml::Table>(text).is_ok()
}

fn is_header(setting: &str) -> bool {
    setting.starts_with('[')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_the_reference_is_on_the_page() {
        let reference = flashfront_serve::config::REFERENCE;
        let text = page(reference).text;
        let lines = reference.lines().map(|line| line.trim_start_matches(['#', ' ']));
        let keys: Vec<&str> =
            lines.filter(|line| is_setting(line)).filter_map(|line| Some(line.split_once(" = ")?.0)).collect();
        assert!(keys.len() > 30, "{keys:?}");
        for key in keys {
            assert!(
                text.lines().any(|line| line.trim_start_matches("\\fB").starts_with(key)),
                "{key} is missing in {text}"
            );
        }
        assert!(
            text.contains(".SS [policy]") && text.contains(".SS [[volume]]") && text.contains(".SS [tls]"),
            "{text}"
        );
    }

    #[test]
    fn comments_belong_to_the_keys_below_them() {
        let found = entries("# All.\n\n# A.\n# More: x = 1, say.\n# a = 1\n# B.\nb = 2\n\n[t]\n# C.\nc = 3\n");
        let entry = |prose: &[&str], settings: &[&str]| Entry {
            prose: prose.iter().map(ToString::to_string).collect(),
            settings: settings.iter().map(ToString::to_string).collect(),
        };
        let wanted = [
            entry(&["All."], &[]),
            entry(&["A.", "More: x = 1, say."], &["a = 1"]),
            entry(&["B."], &["b = 2"]),
            entry(&[], &["[t]"]),
            entry(&["C."], &["c = 3"]),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn the_example_is_a_configuration() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f.toml");
        std::fs::write(&path, EXAMPLE).unwrap();
        flashfront_serve::config::Config::read(&path).unwrap().check().unwrap();
    }
}
