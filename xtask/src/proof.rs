// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x sweep`, `torture` and `golden`: build the virtual world and let it prove what it can.
//!
//! The program takes this one's place, so that Ctrl-C is its own to handle. Both are built as
//! tests are, with all assertions; only `--canaries` asks for the feature that plants bugs.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::run::{Failed, cargo, program, root, stdout_of};

/// The crash sweep; `--point` judges one point again.
pub(crate) fn sweep(args: &[String]) -> Result<(), Failed> {
    become_proof(&[], "sweep", args)
}

/// Random lives, or with `--canaries` the planted bugs.
pub(crate) fn torture(args: &[String]) -> Result<(), Failed> {
    match args.split_first() {
        Some((first, rest)) if first == "--canaries" => {
            become_proof(&["--features=flashfront-proof/canary"], "canaries", rest)
        }
        _ => become_proof(&[], "torture", args),
    }
}

/// A hash of all effects for each of many runs.
pub(crate) fn golden(args: &[String]) -> Result<(), Failed> {
    become_proof(&[], "golden", args)
}

/// What tells glibc to keep freed memory for the next world. Memory from the kernel is cleared anew
/// each time: a sweep of `mail` takes 11.2 s of a processor without this, and 10.2 with it.
const KEEPS_MEMORY: [(&str, &str); 2] =
    [("MALLOC_TRIM_THRESHOLD_", "1073741824"), ("MALLOC_MMAP_THRESHOLD_", "1073741824")];

fn become_proof(features: &[&str], verb: &str, args: &[String]) -> Result<(), Failed> {
    let program = program("flashfront-proof", features)?;
    let mut command = Command::new(&program);
    command.current_dir(root()).arg(verb).args(args).envs(KEEPS_MEMORY);
    let error = command.exec();
    Err(Failed::Start { program: program.display().to_string(), error })
}

/// Finds faults by which the shipped program could have planted bugs: its engine must have no
/// feature at all. (The engine itself refuses the feature in a release build.)
pub(crate) fn no_canaries() -> Result<Vec<String>, Failed> {
    let tree = ["tree", "--package", "flashfront-cli", "--edges", "normal", "--prefix", "none", "--format", "{p}|{f}|"];
    Ok(planted(&stdout_of(&mut cargo(tree))?))
}

fn planted(tree: &str) -> Vec<String> {
    let mut engines = tree.lines().filter(|line| line.starts_with("flashfront-engine ")).peekable();
    if engines.peek().is_none() {
        return vec!["the check itself is broken: the program has no engine".to_owned()];
    }
    let features = engines.filter_map(|line| line.split('|').nth(1)).filter(|features| !features.is_empty());
    features.map(|features| format!("the program's engine is built with the feature {features}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_engine_is_found() {
        assert_eq!(planted("flashfront-cli v0.1.0|tls|\nflashfront-engine v0.1.0||\n"), Vec::<String>::new());
        assert_eq!(planted("flashfront-engine v0.1.0|canary|\n").len(), 1);
        assert_eq!(planted("flashfront-cli v0.1.0|tls|\n").len(), 1, "no engine");
    }
}
