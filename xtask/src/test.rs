// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x test` runs the tests that need nothing but cargo, and `cargo x e2e` those of the
//! release binary.

use crate::run::{Failed, cargo, flashfront, run};

/// Unit tests that `--quick` leaves out: each starts daemons by the dozen.
/// (It leaves out programs of tests altogether, such as those of virtual time.)
const SLOW: &str = "offline::repair::tests::";

/// Runs unit, property and conformance tests. A crate whose tests fail keeps no other crate's
/// tests from running.
///
/// The end-to-end tests are not among them: they want the release binary and other programs, so
/// crates/cli's manifest keeps them out of `cargo test`.
pub(crate) fn test(args: &[String]) -> Result<(), Failed> {
    let mut command = cargo(["test", "--workspace", "--no-fail-fast"]);
    match args {
        [quick, rest @ ..] if quick == "--quick" => {
            run(command.args(["--lib", "--bins", "--", "--skip", SLOW]).args(rest))
        }
        _ => run(command.args(args)),
    }
}

/// Runs the end-to-end tests, of the release binary as users build it, or of the binary that
/// `FLASHFRONT_BIN` names. The arguments are libtest's.
pub(crate) fn e2e(args: &[String]) -> Result<(), Failed> {
    let program = flashfront()?;
    run(cargo(["test", "--workspace", "--test", "e2e", "--"]).args(args).env("FLASHFRONT_BIN", program))
}
