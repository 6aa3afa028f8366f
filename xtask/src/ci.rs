// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x ci` and `cargo x test`: the steps of CI, in order of their price.
//!
//! `./test` installs the tools and then runs these same steps one by one, to sum them up; the
//! list of steps is here alone, `cargo x ci --list` prints it.

use crate::run::{Failed, cargo, flashfront, run};

/// One step: a name, and the arguments of cargo.
struct Step {
    name: &'static str,
    cargo: &'static [&'static str],
}

const STEPS: [Step; 10] = [
    Step { name: "format", cargo: &["fmt", "--all", "--check"] },
    Step { name: "tidy", cargo: &["x", "tidy"] },
    Step { name: "no-std", cargo: &["x", "no-std"] },
    Step { name: "clippy", cargo: &["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"] },
    Step { name: "unit, property, conformance", cargo: &["x", "test"] },
    Step { name: "crash sweep", cargo: &["x", "sweep"] },
    Step { name: "torture, fresh seeds", cargo: &["x", "torture", "--seconds", "60"] },
    Step { name: "planted bugs are caught", cargo: &["x", "torture", "--canaries"] },
    Step { name: "fuzz", cargo: &["x", "fuzz", "--seconds", "12", "--unguided"] },
    // Two tests at a time: each is a client, a daemon, and often a file system.
    Step { name: "release build, end to end", cargo: &["x", "e2e", "--test-threads=2"] },
];

/// All steps; the first that fails ends it. With `--list`: prints `name<TAB>command` instead.
pub(crate) fn ci(args: &[String]) -> Result<(), Failed> {
    let list = args.iter().any(|arg| arg == "--list");
    for step in &STEPS {
        if list {
            println!("{}\tcargo {}", step.name, step.cargo.join(" "));
        } else {
            eprintln!("== {}", step.name);
            run(&mut cargo(step.cargo))?;
        }
    }
    Ok(())
}

/// The tests that need nothing but cargo. The end-to-end tests are not among them: crates/cli's
/// manifest keeps them out of `cargo test`, since they want the release binary and other programs. A crate whose tests fail doesn't keep
/// those of the others from running.
pub(crate) fn test(args: &[String]) -> Result<(), Failed> {
    run(cargo(["test", "--workspace", "--no-fail-fast"]).args(args))
}

/// The end-to-end tests: of the release binary, which is built as users build it, or of the one that `FLASHFRONT_BIN` names. The arguments are libtest's.
pub(crate) fn e2e(args: &[String]) -> Result<(), Failed> {
    let program = flashfront()?;
    run(cargo(["test", "--workspace", "--test", "e2e", "--"]).args(args).env("FLASHFRONT_BIN", program))
}
