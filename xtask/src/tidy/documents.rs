// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules about what documents promise of the code: a promise that names its proof is checked here.

use super::finding::Finding;
use crate::files::File;

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const FORMAT_SOURCE: &str = "crates/engine/src/format";
const FORMAT_DOCUMENT: &str = "docs/internals/format.md";

/// The changelog, and the most lines that a release may have in it.
const CHANGELOG: &str = "CHANGELOG.md";
const RELEASE_LINES: usize = 40;

/// Paths of the machine that a session happens to work on; a reader of the repository hasn't got
/// them.
const ELSEWHERE: [&str; 4] =
    [concat!("/wo", "rk/main"), concat!("/wo", "rk/shared"), concat!("../", "shared"), concat!(".libr", "ary/")];

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = invariants(files);
    findings.extend(on_media_structs(files));
    findings.extend(files.iter().filter(|file| file.path == CHANGELOG).flat_map(long_releases));
    findings.extend(files.iter().flat_map(elsewhere));
    findings
}

fn elsewhere(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(file.text.lines()) {
        if let Some(path) = ELSEWHERE.into_iter().find(|path| line.contains(path)) {
            findings.push(Finding::new(&file.path, number, format!("\"{path}\" is not in the repository")));
        }
    }
    findings
}

/// Finds releases whose entry has too many lines. Blank lines don't count.
fn long_releases(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut release = (0, 0);
    for (number, line) in (1..).zip(file.text.lines().chain(["## end"])) {
        if line.starts_with("## ") {
            let (heading, lines) = std::mem::replace(&mut release, (number, 0));
            if heading > 0 && lines > RELEASE_LINES {
                let text =
                    format!("{lines} lines for a release, at most {RELEASE_LINES}: what users can do now, and no more");
                findings.push(Finding::new(&file.path, heading, text));
            }
        } else if !line.trim().is_empty() {
            release.1 += 1;
        }
    }
    findings
}

/// Each invariant of ARCHITECTURE.md ("N. text — `test_name`") names a test that exists.
fn invariants(files: &[File]) -> Vec<Finding> {
    let Some(document) = files.iter().find(|file| file.path == ARCHITECTURE) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    let mut count = 0;
    for (number, item) in numbered_items(&document.text, "Invariants") {
        count += 1;
        let proof = item.rsplit_once('—').map_or("", |(_, proof)| proof);
        let tests: Vec<&str> = proof.split('`').skip(1).step_by(2).collect();
        if tests.is_empty() {
            findings.push(Finding::new(ARCHITECTURE, number, "an invariant ends with: — `name_of_its_test`"));
        }
        for test in tests {
            let function = test.rsplit("::").next().unwrap_or(test);
            if !files.iter().any(|file| is_test(file, function)) {
                findings.push(Finding::new(ARCHITECTURE, number, format!("there is no test `{function}`")));
            }
        }
    }
    if count == 0 {
        findings.push(Finding::new(ARCHITECTURE, 0, "a section \"Invariants\" with a numbered list is missing"));
    }
    findings
}

/// Whether `file` has a function of that name below a test attribute (or in a `proptest!`, which
/// wants the attribute too).
fn is_test(file: &File, function: &str) -> bool {
    let wanted = format!("fn {function}(");
    let mut attribute = false;
    for line in file.text.lines().map(str::trim) {
        if attribute && line.contains(&wanted) {
            return file.path.starts_with("crates/") && file.path.ends_with(".rs");
        }
        let between = line.starts_with("#[") || line.starts_with("//");
        attribute = line == concat!("#[", "test]") || (attribute && between);
    }
    false
}

/// The items of the numbered list below the heading that ends with `heading`, each with the number
/// of its first line; continuation lines are joined.
fn numbered_items(text: &str, heading: &str) -> Vec<(usize, String)> {
    let mut items: Vec<(usize, String)> = Vec::new();
    let mut inside = false;
    for (number, line) in (1..).zip(text.lines()) {
        if line.starts_with('#') {
            inside = line.ends_with(heading);
        } else if inside && line.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with(". ") {
            items.push((number, line.to_owned()));
        } else if let Some((_, item)) = items.last_mut().filter(|_| inside && line.starts_with(' ')) {
            item.push(' ');
            item.push_str(line.trim());
        }
    }
    items
}

/// docs/internals/format.md describes every struct that lies on the medium.
fn on_media_structs(files: &[File]) -> Vec<Finding> {
    let Some(document) = files.iter().find(|file| file.path == FORMAT_DOCUMENT) else {
        return Vec::new();
    };
    let sources = files.iter().filter(|file| {
        let rest = file.path.strip_prefix(FORMAT_SOURCE);
        rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/') && !rest.ends_with("tests.rs"))
    });
    let missing = sources.flat_map(structs_from_bytes).filter(|(_, _, name)| !document.text.contains(name.as_str()));
    missing
        .map(|(path, line, name)| Finding::new(&path, line, format!("{name} is not described in {FORMAT_DOCUMENT}")))
        .collect()
}

fn structs_from_bytes(file: &File) -> Vec<(String, usize, String)> {
    let mut structs = Vec::new();
    let mut derived = false;
    for (number, line) in (1..).zip(file.text.lines().map(str::trim)) {
        if line.starts_with("#[derive(") {
            derived = line.contains("FromBytes");
        } else if let Some((_, rest)) = line.split_once("struct ").filter(|(before, _)| !before.starts_with("//")) {
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
            if std::mem::take(&mut derived) {
                structs.push((file.path.clone(), number, name));
            }
        }
    }
    structs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.into() }
    }

    #[test]
    fn an_invariant_needs_a_test_that_exists() {
        let text =
            "# A\n## Invariants\n1. Good\n   thing — `module::proved`\n2. Bad — `unproved`\n3. None\n## B\n4. x\n";
        let test = concat!("#[", "test]\n#[cfg(unix)]\nfn proved() {}\nfn unproved() {}\n");
        let files = [file(ARCHITECTURE, text), file("crates/a/src/x.rs", test)];
        let lines: Vec<usize> = invariants(&files).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [5, 6]);
    }

    #[test]
    fn an_architecture_without_invariants_is_found() {
        assert_eq!(invariants(&[file(ARCHITECTURE, "# A\n")]).len(), 1);
    }

    #[test]
    fn every_on_media_struct_is_described() {
        let source = "#[derive(FromBytes)]\n#[repr(C)]\npub struct Told {\n#[derive(FromBytes)]\nstruct Untold;\n#[derive(Debug)]\nstruct Other;";
        let files = [file("crates/engine/src/format.rs", source), file(FORMAT_DOCUMENT, "`Told`")];
        let findings = on_media_structs(&files);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].text.contains("Untold"), "{findings:?}");
    }

    #[test]
    fn a_release_has_few_lines_in_the_changelog() {
        let release = |lines: usize| format!("## 1.0\n\n{}", "- A thing.\n".repeat(lines));
        let text = format!("# Changelog\n{}\n{}", release(RELEASE_LINES), release(RELEASE_LINES + 1));
        let lines: Vec<usize> = long_releases(&file(CHANGELOG, &text)).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [RELEASE_LINES + 5]);
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        assert_eq!(elsewhere(&file("a.md", concat!("see ../", "shared/x\nfine\n"))).len(), 1);
    }
}
