// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operator's log on stderr: a line per event, nothing on the path of an I/O.

use std::io::IsTerminal;

use tracing::Level;

/// Starts it; warnings and news of a daemon by default.
pub(crate) fn start(verbose: u8, quiet: bool) {
    let level = match (quiet, verbose) {
        (true, _) => Level::ERROR,
        (false, 0) => Level::INFO,
        (false, 1) => Level::DEBUG,
        (false, _) => Level::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(verbose > 0)
        .without_time()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
}
