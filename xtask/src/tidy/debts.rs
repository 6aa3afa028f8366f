// SPDX-License-Identifier: MIT OR Apache-2.0
//! The debts of the tree to rules that are younger than its files.
//!
//! A ledger is a file with a line for each debt: the rule, a count, a path. More than that is a
//! failure, less is a reminder to write the lower count down. So the list only shrinks.

use super::finding::Finding;
use crate::files::File;

/// How far one file is from keeping a rule.
#[derive(Debug, Clone)]
pub(crate) struct Debt {
    pub(crate) rule: &'static str,
    pub(crate) path: String,
    pub(crate) count: usize,
    /// The count of a file that keeps the rule.
    pub(crate) allowed: usize,
    /// The finding, for the message.
    pub(crate) what: String,
}

/// Compares what is found with what the ledger at a path admits.
pub(super) fn check(path: &str, files: &[File], debts: &[Debt]) -> Vec<Finding> {
    let ledger = ledger(path, files);
    let mut findings = Vec::new();
    for debt in debts {
        let owed = ledger.iter().find(|owed| owed.is(debt)).map_or(debt.allowed, |owed| owed.count);
        if debt.count > owed {
            let text = format!("{}: {}, at most {owed} (see {path})", debt.what, debt.count);
            findings.push(Finding::new(&debt.path, 0, text));
        }
    }
    for owed in &ledger {
        let now = debts.iter().find(|debt| owed.is(debt));
        if now.is_none_or(|debt| debt.count < owed.count) {
            let left = now.map_or_else(|| "the file is gone".to_owned(), |debt| format!("{} left", debt.count));
            let text = format!("{} {} {}: {left}; run `cargo x tidy --lower`", owed.rule, owed.count, owed.path);
            findings.push(Finding { line: owed.line, ..Finding::warning(path, text) });
        }
    }
    findings
}

/// The text of the ledger with every count as low as it is now, without what is paid off. No count
/// rises.
pub(super) fn lowered(path: &str, files: &[File], debts: &[Debt]) -> String {
    let text = files.iter().find(|file| file.path == path).map_or("", |file| file.text.as_str());
    let mut lines: Vec<String> = text.lines().filter(|line| line.starts_with('#')).map(str::to_owned).collect();
    for owed in ledger(path, files) {
        let Some(debt) = debts.iter().find(|debt| owed.is(debt)) else { continue };
        let count = debt.count.min(owed.count);
        if count > debt.allowed {
            lines.push(format!("{} {count} {}", owed.rule, owed.path));
        }
    }
    lines.join("\n") + "\n"
}

/// A line of the ledger.
struct Owed<'a> {
    line: usize,
    rule: &'a str,
    count: usize,
    path: &'a str,
}

impl Owed<'_> {
    fn is(&self, debt: &Debt) -> bool {
        self.rule == debt.rule && self.path == debt.path
    }
}

/// Reads all lines of the ledger. A line that can't be read admits nothing, so its debt is a
/// failure.
///
/// Two lines for one debt, as a merge can leave them, admit the lower count.
fn ledger<'a>(path: &str, files: &'a [File]) -> Vec<Owed<'a>> {
    let text = files.iter().find(|file| file.path == path).map_or("", |file| file.text.as_str());
    let mut ledger: Vec<Owed<'a>> = Vec::new();
    for (line, text) in (1..).zip(text.lines()).filter(|(_, text)| !text.starts_with('#')) {
        let mut words = text.splitn(3, ' ');
        let (Some(rule), Some(Ok(count)), Some(path)) =
            (words.next(), words.next().map(str::parse::<usize>), words.next())
        else {
            continue;
        };
        match ledger.iter_mut().find(|owed| owed.rule == rule && owed.path == path) {
            Some(owed) => owed.count = count.min(owed.count),
            None => ledger.push(Owed { line, rule, count, path }),
        }
    }
    ledger
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEDGER: &str = "debts.txt";

    fn files(ledger: &str) -> [File; 1] {
        [File { path: LEDGER.into(), text: ledger.into() }]
    }

    fn debt(path: &str, count: usize) -> Debt {
        Debt { rule: "wide", path: path.into(), count, allowed: 2, what: "wide".into() }
    }

    #[test]
    fn more_than_the_ledger_admits_is_a_failure_and_less_a_reminder() {
        let files = files("# rule count path\nwide 5 a.rs\nwide 5 b.rs\nwide 5 gone.rs\nother 9 c.rs\n");
        let found = check(LEDGER, &files, &[debt("a.rs", 6), debt("b.rs", 4), debt("c.rs", 3), debt("d.rs", 2)]);
        let (warnings, failures): (Vec<_>, Vec<_>) = found.iter().partition(|finding| finding.warning);
        assert_eq!(failures.iter().map(|finding| finding.path.as_str()).collect::<Vec<_>>(), ["a.rs", "c.rs"]);
        assert_eq!(warnings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [3, 4, 5]);
    }

    #[test]
    fn of_two_lines_for_one_debt_the_lower_count_holds() {
        let files = files("wide 5 a.rs\nwide 3 a.rs\nwide 4 a.rs\n");
        assert!(!check(LEDGER, &files, &[debt("a.rs", 4)])[0].warning);
        assert_eq!(lowered(LEDGER, &files, &[debt("a.rs", 3)]), "wide 3 a.rs\n");
    }

    #[test]
    fn a_ledger_is_lowered_and_never_raised() {
        let files = files("# rule count path\nwide 5 a.rs\nwide 5 b.rs\nwide 5 c.rs\nwide 5 gone.rs\n");
        let debts = [debt("a.rs", 6), debt("b.rs", 4), debt("c.rs", 2), debt("new.rs", 9)];
        assert_eq!(lowered(LEDGER, &files, &debts), "# rule count path\nwide 5 a.rs\nwide 4 b.rs\n");
    }
}
