// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links of documents lead somewhere: to a file that exists, and to a heading in it.
//!
//! Looks at relative links of all Markdown files, at the book's table of contents, and at paths of
//! documents that sources name. Addresses of other sites are left alone: no network is used.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::Finding;
use crate::files::File;
use crate::markdown::{anchors, links, resolve};
use crate::run::root;

const CONTENTS: &str = "docs/SUMMARY.md";

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    check_with(files, &|path| root().join(path).exists())
}

/// `exists` tells of a path from the root whether something is there.
fn check_with(files: &[File], exists: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let documents: BTreeMap<&str, Document> =
        files.iter().filter(|file| file.path.ends_with(".md")).map(|file| (file.path.as_str(), read(file))).collect();
    let mut findings = Vec::new();
    for (path, document) in &documents {
        for (line, link) in &document.links {
            if let Some(why) = dead(path, link, &documents, exists) {
                findings.push(Finding::new(path, *line, format!("the link {link} is dead: {why}")));
            }
        }
    }
    findings.extend(contents(&documents));
    findings.extend(files.iter().flat_map(|file| named_documents(file, exists)));
    findings
}

/// A Markdown file for this rule: links with their line numbers, and the anchors of its headings.
struct Document<'a> {
    links: Vec<(usize, &'a str)>,
    anchors: BTreeSet<String>,
}

fn read(file: &File) -> Document<'_> {
    let links = links(&file.text).into_iter();
    let links = links.filter_map(|link| Some((link.line, file.text.get(link.target)?))).collect();
    Document { links, anchors: anchors(&file.text) }
}

/// Why a link leads nowhere; nothing if it leads somewhere or out of the repository.
fn dead(from: &str, link: &str, documents: &BTreeMap<&str, Document>, exists: &dyn Fn(&str) -> bool) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let target = if path.is_empty() { from.to_owned() } else { resolve(from, path) };
    if !exists(&target) {
        return Some(format!("there is no {target}"));
    }
    let (anchor, document) = (anchor?, documents.get(target.as_str())?);
    (!document.anchors.contains(anchor)).then(|| format!("{target} has no heading for #{anchor}"))
}

/// The table of contents lists every page of the book, each once.
fn contents(documents: &BTreeMap<&str, Document>) -> Vec<Finding> {
    let Some(contents) = documents.get(CONTENTS) else {
        return Vec::new();
    };
    let mut listed = BTreeSet::new();
    let mut findings = Vec::new();
    for (line, link) in &contents.links {
        if !listed.insert(resolve(CONTENTS, link)) {
            findings.push(Finding::new(CONTENTS, *line, format!("{link} is listed twice")));
        }
    }
    let pages = documents.keys().filter(|path| path.starts_with("docs/") && **path != CONTENTS);
    let missing = pages.filter(|path| !listed.contains(**path));
    findings.extend(missing.map(|path| Finding::new(path, 0, format!("{CONTENTS} does not list this page"))));
    findings
}

/// Comments and messages name documents that exist. (Unit tests may invent some.)
fn named_documents(file: &File, exists: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(file.text.lines()).take_while(|(_, line)| *line != "mod tests {") {
        for (at, _) in line.match_indices("docs/") {
            let (before, rest) = line.split_at(at);
            if before.ends_with(|c: char| c.is_alphanumeric() || "/._-".contains(c)) {
                continue;
            }
            let length = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "/._-".contains(c))).unwrap_or(rest.len());
            let named = rest.get(..length).and_then(|named| named.get(..named.find(".md")? + 3));
            if let Some(path) = named.filter(|path| !exists(path)) {
                findings.push(Finding::new(&file.path, number, format!("there is no {path}")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.into() }
    }

    /// A page of the book.
    fn page(path: &str, text: &str) -> File {
        file(&format!("docs/{path}"), text)
    }

    fn findings(files: &[File]) -> Vec<String> {
        let exists = |path: &str| path == "docs" || files.iter().any(|file| file.path == path);
        check_with(files, &exists).iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn links_lead_to_files_and_headings() {
        let a = "# One `two`: [three](b.md)\n[a](#one-two-three) [b](b.md#x-1) [c](../R.md) [d](https://x.org/#y)\n```\n[e](no.md)\n```\n`[f](no.md)`\n";
        let files = [page("a.md", a), page("b.md", "# X\n## X\n"), file("R.md", "[docs](docs/)\n")];
        assert_eq!(findings(&files), Vec::<String>::new());
    }

    #[test]
    fn dead_links_are_found() {
        let a = "[a](no.md) and [b](b.md#y)\n[c](#z)\n[d]: ../../b.md\n";
        let files = [page("a.md", a), page("b.md", "# X\n```\n# y\n```\n")];
        let expected = [
            "docs/a.md:1: the link no.md is dead: there is no docs/no.md",
            "docs/a.md:1: the link b.md#y is dead: docs/b.md has no heading for #y",
            "docs/a.md:2: the link #z is dead: docs/a.md has no heading for #z",
            "docs/a.md:3: the link ../../b.md is dead: there is no ../b.md",
        ];
        assert_eq!(findings(&files), expected);
    }

    #[test]
    fn the_contents_list_every_page_once() {
        let contents = page("SUMMARY.md", "- [A](a.md)\n- [A](./a.md)\n");
        let files = [contents, page("a.md", ""), page("adr/b.md", "")];
        let expected =
            ["docs/SUMMARY.md:2: ./a.md is listed twice", "docs/adr/b.md: docs/SUMMARY.md does not list this page"];
        assert_eq!(findings(&files), expected);
    }

    #[test]
    fn documents_that_a_source_names_exist() {
        let source = "// see docs/a.md, docs/no.md, and https://x.org/docs/c.md\n";
        let found = findings(&[file("x.rs", source), page("a.md", "")]);
        assert_eq!(found, ["x.rs:1: there is no docs/no.md"]);
    }
}
