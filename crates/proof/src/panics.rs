// SPDX-License-Identifier: MIT OR Apache-2.0
//! Panics are kept and told in one line. The oracle and the engine's own checks speak by panics,
//! which a proof catches and counts.

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
    LAST.take();
    panic::catch_unwind(panic::AssertUnwindSafe(run)).map_err(|panic| {
        // A helper's panic goes on in this thread, and was kept for the helper's.
        let brought = panic.downcast::<String>().map(|said| *said);
        let brought = brought.or_else(|panic| panic.downcast::<&str>().map(|said| (*said).to_owned()));
        let said = LAST.take();
        if said.is_empty() { brought.unwrap_or_else(|_| "a panic without words".into()) } else { said }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hook is the whole process's: each test has one of its own (nextest), and threads keep
    /// their own words (cargo test).
    #[test]
    fn a_helpers_panic_says_what_it_said() {
        keep();
        assert_eq!(caught(|| panic!("the first")).unwrap_err().split(" (").next(), Some("the first"));
        let helpers = |said: &'static str| {
            let helper = std::thread::spawn(move || {
                if said.len() > 3 {
                    panic!("{said}, by a helper")
                }
            });
            helper.join().map_err(|panic| panic::resume_unwind(panic))
        };
        assert_eq!(caught(|| helpers("another")).unwrap_err(), "another, by a helper");
        assert_eq!(caught(|| helpers("no")), Ok(Ok::<_, ()>(())));
    }
}
