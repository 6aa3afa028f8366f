// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file `copyright` of the package: our licence, and those of every crate that is linked in.
//!
//! Debian's format is DEP-5. Crates and their licences come from cargo. Names of holders and texts
//! of licences come from the files that the crates themselves carry.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::tree::failed;
use crate::run::{Failed, cargo, host, stdout_of};

/// Licences whose text every Debian has.
const COMMON: [(&str, &str); 2] = [("Apache-2.0", "Apache-2.0"), ("CC0-1.0", "CC0-1.0")];

/// Licences whose files are not named after their SPDX identifier.
const NAMED_OTHERWISE: [(&str, &str); 1] = [("BSL-1.0", "BOOST")];

/// A crate that is linked in.
struct Crate {
    name: String,
    version: String,
    licence: String,
    authors: Vec<String>,
    repository: String,
    files: Vec<PathBuf>,
}

/// The file.
pub(super) fn text() -> Result<String, Failed> {
    let crates = linked()?;
    let mut text = format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Flashfront
Comment: The program is linked with the crates below. `cargo vendor` puts their
 sources into vendor/, where the lines `Files:` mean them.

Files: *
Copyright: The Flashfront contributors
License: {}

Files: vendor/std/*
Copyright: The Rust Project Developers
License: {}
",
        expression("MIT OR Apache-2.0"),
        expression("MIT OR Apache-2.0"),
    );
    let mut ids: BTreeSet<String> = ids("MIT OR Apache-2.0").into_iter().collect();
    for it in &crates {
        let holders = holders(it)?;
        text.push_str(&format!(
            "\nFiles: vendor/{}-{}/*\nCopyright: {}\nLicense: {}\n",
            it.name,
            it.version,
            holders.join("\n "),
            expression(&it.licence)
        ));
        ids.extend(self::ids(&it.licence));
    }
    let texts = texts(&crates)?;
    for id in &ids {
        text.push_str(&format!("\nLicense: {id}\n{}", indented(&wording(id, &texts)?)));
    }
    Ok(text)
}

/// The crates that are linked in: not those that only take part in the build.
fn linked() -> Result<Vec<Crate>, Failed> {
    let host = host()?;
    let tree = ["tree", "--package", "flashfront-cli", "--edges", "normal,no-proc-macro", "--prefix", "none"];
    let tree = stdout_of(cargo(tree).args(["--quiet", "--no-dedupe", "--target", &host, "--format", "{p}"]))?;
    // "name v1.2.3 (proc-macro)", or with a path for our own.
    let lines = tree.lines().filter(|line| !line.contains('('));
    let wanted: BTreeSet<(String, String)> = lines
        .filter_map(|line| line.split_once(" v"))
        .map(|(name, version)| (name.to_owned(), version.trim().to_owned()))
        .collect();
    let metadata = stdout_of(&mut cargo(["metadata", "--format-version", "1", "--locked", "--quiet"]))?;
    let metadata: Value = serde_json::from_str(&metadata)
        .map_err(|error| Failed::Usage(format!("cargo metadata is no JSON: {error}")))?;
    let packages = metadata["packages"].as_array().cloned().unwrap_or_default();
    let mut crates = Vec::new();
    for (name, version) in wanted {
        let package = packages.iter().find(|it| it["name"] == name.as_str() && it["version"] == version.as_str());
        let Some(package) = package else {
            return Err(Failed::Usage(format!("cargo metadata knows no {name} {version}")));
        };
        crates.push(known(name, version, package)?);
    }
    Ok(crates)
}

fn known(name: String, version: String, package: &Value) -> Result<Crate, Failed> {
    let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let folder = PathBuf::from(text("manifest_path")).parent().map(Path::to_owned).unwrap_or_default();
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed(&folder))?.flatten() {
        let file = entry.file_name().to_string_lossy().to_ascii_uppercase();
        let is_licence = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "UNLICENSE", "NOTICE"];
        if is_licence.iter().any(|it| file.starts_with(it)) && entry.path().is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    let authors = package["authors"].as_array().cloned().unwrap_or_default();
    let authors = authors.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    Ok(Crate { licence: text("license"), repository: text("repository"), name, version, authors, files })
}

/// Returns the holders of the copyright: by the crate's files, or its authors, or the owner of its
/// repository.
fn holders(it: &Crate) -> Result<Vec<String>, Failed> {
    let mut holders = Vec::new();
    for file in &it.files {
        let text = fs::read(file).map_err(failed(file))?;
        for line in String::from_utf8_lossy(&text).lines() {
            let line = line.trim().trim_start_matches(['/', '*', '#', ' ']);
            let lower = line.to_ascii_lowercase();
            let names_one = ["copyright (c)", "copyright ©", "copyright 1", "copyright 2", "copyright the"];
            if names_one.iter().any(|it| lower.starts_with(it)) && !lower.contains("[yyyy]") {
                let line = line["copyright".len()..].trim().trim_start_matches(['(', 'c', 'C', ')', '©', ' ']);
                holders.push(line.to_owned());
            }
        }
    }
    holders.sort();
    holders.dedup();
    if holders.is_empty() {
        holders.clone_from(&it.authors);
    }
    if holders.is_empty() {
        holders.push(format!("the authors of {} ({})", it.name, it.repository));
    }
    Ok(holders)
}

/// An SPDX expression in Debian's words.
fn expression(spdx: &str) -> String {
    spdx.replace('/', " OR ").replace(" WITH ", "-with-").replace(" OR ", " or ").replace(" AND ", " and ")
}

/// The licences that an SPDX expression names.
fn ids(spdx: &str) -> Vec<String> {
    let words = expression(spdx).replace(['(', ')'], " ");
    words.split_whitespace().filter(|word| !["or", "and"].contains(word)).map(str::to_owned).collect()
}

/// The texts of licences, from crates that have one licence, or a file that is named after it.
fn texts(crates: &[Crate]) -> Result<BTreeMap<String, String>, Failed> {
    let mut texts = BTreeMap::new();
    for it in crates {
        let ids = ids(&it.licence);
        for id in &ids {
            let otherwise = NAMED_OTHERWISE.iter().find(|(licence, _)| *licence == id);
            let word = otherwise.map_or_else(|| id.split('-').next().unwrap_or(id), |(_, name)| name);
            let word = word.to_ascii_uppercase();
            let is_its = |file: &&PathBuf| {
                let name = file.file_name().unwrap_or_default().to_string_lossy().to_ascii_uppercase();
                let is_named = name.contains(&word) && !name.starts_with("COPYRIGHT");
                is_named || ids.len() == 1 && name.starts_with("LICEN")
            };
            if let Some(file) = it.files.iter().find(is_its).filter(|_| !texts.contains_key(id)) {
                let text = fs::read(file).map_err(failed(file))?;
                // The paragraphs of the crates say whose text this is.
                let text = String::from_utf8_lossy(&text);
                let text =
                    text.lines().filter(|line| !line.trim_start().to_ascii_lowercase().starts_with("copyright (c)"));
                texts.insert(id.clone(), text.collect::<Vec<&str>>().join("\n"));
            }
        }
    }
    Ok(texts)
}

fn wording(id: &str, texts: &BTreeMap<String, String>) -> Result<String, Failed> {
    if let Some((_, name)) = COMMON.iter().find(|(common, _)| *common == id) {
        return Ok(format!("On Debian systems the text is in /usr/share/common-licenses/{name}.\n"));
    }
    if let Some(base) = id.strip_suffix("-with-LLVM-exception") {
        return Ok(format!("As {base}, and with these LLVM exceptions:\n{LLVM_EXCEPTION}"));
    }
    texts.get(id).cloned().ok_or_else(|| {
        Failed::Usage(format!(
            "no crate that is linked in has the text of the licence {id}: teach copyright.rs about it"
        ))
    })
}

const LLVM_EXCEPTION: &str = "\
As an exception, if, as a result of your compiling your source code, portions
of this Software are embedded into an Object form of such source code, you
may redistribute such embedded portions in such Object form without complying
with the conditions of Sections 4(a), 4(b) and 4(d) of the License.

In addition, if you combine or link compiled forms of this Software with
software that is licensed under the GPLv2 (\"Combined Software\") and if a
court of competent jurisdiction determines that the patent provision (Section
3), the indemnity provision (Section 9) or other Section of the License
conflicts with the conditions of the GPLv2, you may retroactively and
prospectively choose to deem waived or otherwise exclude such Section(s) of
the License, but only in their entirety and only with respect to the Combined
Software.
";

/// Lines below a field: a space before each, a dot for an empty one.
fn indented(text: &str) -> String {
    let line = |line: &str| if line.trim().is_empty() { " .\n".to_owned() } else { format!(" {}\n", line.trim_end()) };
    text.trim().lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_said_in_debians_words() {
        assert_eq!(expression("MIT/Apache-2.0"), "MIT or Apache-2.0");
        assert_eq!(
            ids("(MIT OR Apache-2.0 WITH LLVM-exception) AND ISC"),
            ["MIT", "Apache-2.0-with-LLVM-exception", "ISC"]
        );
        assert_eq!(indented("a\n\nb"), " a\n .\n b\n");
    }
}
