// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every dependency may be used under a licence of deny.toml's list.
//!
//! `cargo deny` checks the same and more, but takes minutes to build; this needs nothing.

use super::finding::Finding;
use crate::run::{Failed, cargo, read, root, stdout_of};

const DENY: &str = "deny.toml";

pub(super) fn check() -> Result<Vec<Finding>, Failed> {
    let allowed = allowed(&read(&root().join(DENY))?);
    let mut findings: Vec<Finding> = Vec::new();
    for (manifest, lock) in [("Cargo.toml", "Cargo.lock"), ("fuzz/Cargo.toml", "fuzz/Cargo.lock")] {
        let tree = ["tree", "--workspace", "--edges", "all", "--target", "all", "--prefix", "none"];
        let format = ["--quiet", "--format", "{p}|{l}", "--manifest-path", manifest];
        let tree = stdout_of(cargo(tree).args(format))?;
        // "(*)" stands for the packages below one that is listed already.
        let lines = tree.lines().map(|line| line.trim_end_matches(" (*)"));
        for (package, licence) in lines.filter_map(|line| line.split_once('|')) {
            if !satisfied(licence, &allowed) {
                let finding = Finding::new(lock, 0, format!("{package}: \"{licence}\" is not allowed by {DENY}"));
                if !findings.contains(&finding) {
                    findings.push(finding);
                }
            }
        }
    }
    Ok(findings)
}

/// The quoted names of `allow = [...]` below `[licenses]`.
fn allowed(deny: &str) -> Vec<String> {
    let licences = deny.split("\n[licenses]").nth(1).and_then(|section| section.split("\n[").next());
    let list = licences.and_then(|section| section.split("allow = [").nth(1)).and_then(|it| it.split(']').next());
    list.unwrap_or_default().split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Whether an SPDX expression can be met with allowed licences alone.
///
/// Parentheses are taken from the inside out; `AND` binds tighter than `OR`; `/` is the old `OR`.
fn satisfied(expression: &str, allowed: &[String]) -> bool {
    let mut expression = expression.replace('/', " OR ");
    while let Some(close) = expression.find(')') {
        let Some(open) = expression.get(..close).and_then(|it| it.rfind('(')) else {
            return false;
        };
        let inner = satisfied(expression.get(open + 1..close).unwrap_or_default(), allowed);
        expression.replace_range(open..=close, if inner { TRUE } else { "no" });
    }
    expression
        .split(" OR ")
        .any(|all| all.split(" AND ").map(str::trim).all(|one| one == TRUE || allowed.iter().any(|name| name == one)))
}

/// Stands for a part of an expression that is met; no licence has this name.
const TRUE: &str = "<met>";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_judged_as_spdx_means_them() {
        let allowed = allowed("[bans]\n\n[licenses]\nallow = [\n  \"MIT\", # x\n  \"Zlib\",\n]\n[sources]\n");
        assert_eq!(allowed, ["MIT", "Zlib"]);
        for good in ["MIT", "MIT OR GPL-3.0", "GPL-3.0/MIT", "(MIT OR X) AND Zlib", "X OR (MIT AND Zlib)"] {
            assert!(satisfied(good, &allowed), "{good}");
        }
        for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR X) AND X", "MIT)"] {
            assert!(!satisfied(bad, &allowed), "{bad}");
        }
    }
}
