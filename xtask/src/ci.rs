// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x ci` and `cargo x test`: the steps of CI, in order of their price.
//!
//! `./test` installs the tools and then runs these same steps one by one, to sum them up; the
//! list of steps is here alone, `cargo x ci --list` prints it. `--quick` takes those that a developer wants
//! before each commit: the first ones, and unit tests without the slow ones.

use crate::run::{Failed, cargo, flashfront, run};

/// One step: a name, and the arguments of cargo.
#[derive(Clone, Copy)]
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

const QUICK: [Step; 4] =
    [STEPS[0], STEPS[1], STEPS[3], Step { name: "unit tests without the slow ones", cargo: &["x", "test", "--quick"] }];

/// Unit tests that `--quick` leaves out: each starts daemons by the dozen. (Programs of tests, like those of virtual time, it leaves out altogether.)
const SLOW: &str = "offline::repair::tests::";

/// All steps; the first that fails ends it. With `--list`: prints `name<TAB>command` instead.
pub(crate) fn ci(args: &[String]) -> Result<(), Failed> {
    let has = |option: &str| args.iter().any(|arg| arg == option);
    let list = has("--list");
    let steps = if has("--quick") { &QUICK[..] } else { &STEPS[..] };
    for step in steps {
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
    let mut command = cargo(["test", "--workspace", "--no-fail-fast"]);
    match args {
        [quick, rest @ ..] if quick == "--quick" => {
            run(command.args(["--lib", "--bins", "--", "--skip", SLOW]).args(rest))
        }
        _ => run(command.args(args)),
    }
}

/// The end-to-end tests: of the release binary, which is built as users build it, or of the one that `FLASHFRONT_BIN` names. The arguments are libtest's.
pub(crate) fn e2e(args: &[String]) -> Result<(), Failed> {
    let program = flashfront()?;
    run(cargo(["test", "--workspace", "--test", "e2e", "--"]).args(args).env("FLASHFRONT_BIN", program))
}
