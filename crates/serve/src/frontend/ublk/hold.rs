// SPDX-License-Identifier: MIT OR Apache-2.0
//! Leaves a device to the next program, between two requests (ADR 0076).

use super::{Phase, Ublk};

impl Ublk {
    /// Says why no other program can have the device.
    pub(super) fn ends_with_this(&self) -> Option<String> {
        let ends = self.phase != Phase::Gone && !self.options.recoverable;
        ends.then(|| {
            format!(
                "/dev/{} would end with this program: only a device of durability `always` outlives it",
                self.name()
            )
        })
    }

    /// Whether all that was taken is answered, and the kernel has the answers.
    pub(super) fn is_held(&self) -> bool {
        let answered = self.table.is_empty() && self.results.borrow().is_empty() && self.again_at.is_none();
        self.phase == Phase::Gone || self.phase == Phase::Live && self.on_hold && answered
    }

    /// Closes the device, which waits for the next program. What was fetched and not taken, or
    /// waits for buffers, is fetched by that one.
    pub(super) fn leave_device(&mut self) {
        self.waiting.clear();
        self.queue = None;
        self.phase = Phase::Gone;
    }
}
