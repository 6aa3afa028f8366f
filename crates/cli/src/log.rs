// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operator's log on stderr: a line per event, nothing on the path of an I/O.

use std::io::IsTerminal;

use tracing::Level;

/// Starts it: -1 = errors, 0 = warnings, 1 = news, 2 and more = details.
pub(crate) fn start(level: i8) {
    let max = match level {
        ..0 => Level::ERROR,
        0 => Level::WARN,
        1 => Level::INFO,
        2 => Level::DEBUG,
        _ => Level::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(max)
        .with_target(level > 1)
        .without_time()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        // It would say so on stderr, which panics: a daemon outlives the reader of its log.
        .log_internal_errors(false)
        .init();
}
