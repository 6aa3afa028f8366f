// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths in reports.

use serde::Serialize;

/// Writes a path to JSON; a path that isn't UTF-8 has a form too. No report may fail after its work
/// was done.
pub(super) fn shown<S: serde::Serializer>(path: &std::path::Path, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&path.display())
}

/// Shows a path that may be absent.
pub(super) fn shown_if_any<S: serde::Serializer>(path: &Option<std::path::PathBuf>, to: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.display().to_string()).serialize(to)
}
