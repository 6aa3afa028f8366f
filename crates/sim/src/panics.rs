// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a panic said: the oracle and the engine's own checks speak by panics, which a proof catches,
//! counts and reports in one line.

use std::cell::RefCell;
use std::panic;

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// From now on panics are kept, each for its own thread, and not printed.
pub fn keep() {
    panic::set_hook(Box::new(|info| {
        let place = info.location().map(|at| format!(" ({}:{})", at.file(), at.line())).unwrap_or_default();
        let said = info.payload_as_str().unwrap_or("a panic without words");
        LAST.with(|last| *last.borrow_mut() = format!("{said}{place}"));
    }));
}

/// Runs something; what its panic said, if it did.
///
/// # Errors
/// What the panic said.
pub fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    panic::catch_unwind(panic::AssertUnwindSafe(run)).map_err(|_| last())
}

/// What the last panic of this thread said.
fn last() -> String {
    LAST.with(|last| last.borrow().clone())
}
