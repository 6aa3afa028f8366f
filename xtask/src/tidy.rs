// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x tidy`: the rules of the house that no compiler checks.
//!
//! It looks at every file that git knows or would add. `source` and `comments` have rules about
//! Rust sources, and `documents` about the promises of documents. `links` checks links, `messages`
//! the entries for the program's messages, and `licences` the licences of dependencies. `debts`
//! holds what old files still owe to young rules, and the ceilings of the figures of
//! [`crate::house`].

pub(crate) mod comments;
pub(crate) mod debts;
mod documents;
mod finding;
mod licences;
mod links;
mod messages;
pub(crate) mod source;

use crate::files::{File, files};
use crate::run::{Failed, root};
use crate::{house, prose};
use debts::Debt;

/// The file with what may still break a rule.
const DEBTS: &str = "xtask/debts.txt";
/// The file with the ceilings of the figures of `cargo x house`.
const CEILINGS: &str = "xtask/ceilings.txt";

/// Checks all rules; with `--lower` first writes down what files no longer owe.
pub(crate) fn tidy(args: &[String]) -> Result<(), Failed> {
    let mut files = files()?;
    let mut owed = comments::count(&files);
    owed.extend(long_sentences(&files));
    let owed = [(DEBTS, owed), (CEILINGS, house::debts(&files)?)];
    match args {
        [] => {}
        [lower] if lower == "--lower" => {
            for (ledger, owed) in &owed {
                let text = debts::lowered(ledger, &files, owed);
                let path = root().join(ledger);
                std::fs::write(&path, &text).map_err(|error| Failed::File { path, error })?;
                files.retain(|file| file.path != *ledger);
                files.push(File { path: (*ledger).into(), text });
            }
        }
        _ => return Err(Failed::Usage(format!("{} is unknown; expected nothing or --lower", args.join(" ")))),
    }
    let mut findings = source::check(&files);
    findings.extend(owed.iter().flat_map(|(ledger, owed)| debts::check(ledger, &files, owed)));
    findings.extend(documents::check(&files));
    findings.extend(links::check(&files));
    findings.extend(messages::check(&files));
    findings.extend(licences::check()?);
    for finding in &findings {
        eprintln!("{finding}");
    }
    let failures = findings.iter().filter(|finding| !finding.warning).count();
    if failures > 0 {
        return Err(Failed::Findings(failures));
    }
    println!("tidy: {} files", files.len());
    Ok(())
}

/// How long the sentences of each document are.
fn long_sentences(files: &[File]) -> Vec<Debt> {
    let documents = files.iter().filter(|file| prose::is_document(&file.path));
    let lengths = documents.filter_map(|file| Some((file, prose::lengths(&file.text)?)));
    lengths
        .map(|(file, lengths)| Debt {
            rule: "sentences-p90",
            path: file.path.clone(),
            count: lengths.p90,
            allowed: prose::LIMIT,
            what: format!("p90 of words per sentence (`cargo x prose --long {}`)", file.path),
        })
        .collect()
}
