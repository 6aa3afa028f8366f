// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far long work is: a bar on stderr, if that is a terminal, and not with --quiet.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Work is looked at once in this time: often enough for a smooth bar, rarely enough to cost
/// nothing.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(250);

const BYTES: &str = "{prefix} [{bar:30}] {binary_bytes} of {binary_total_bytes}  {binary_bytes_per_sec}  {eta} left";
const SHARE: &str = "{prefix} [{bar:30}] {percent} %  {eta} left";

/// A bar of indicatif's template.
pub(crate) fn bar(template: &str, whole: u64) -> ProgressBar {
    if !tracing::enabled!(tracing::Level::WARN) {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(whole).with_style(style.progress_chars("#>."))
}

/// Makes a bar of the bytes done, all bytes, the speed, and the time left.
pub(crate) fn of_bytes(doing: &'static str) -> ProgressBar {
    bar(BYTES, 0).with_prefix(doing)
}

/// Makes a bar of the share done, and the time left.
pub(crate) fn of_share(doing: &'static str, whole: u64) -> ProgressBar {
    bar(SHARE, whole).with_prefix(doing)
}

/// Shows how much is done of how much.
pub(crate) fn show(bar: &ProgressBar, done: u64, all: u64) {
    bar.set_length(all);
    bar.set_position(done);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_are_indicatifs() {
        for template in [BYTES, SHARE] {
            ProgressStyle::with_template(template).unwrap();
        }
    }
}
