// SPDX-License-Identifier: MIT OR Apache-2.0
//! A planted bug of the engine holds in all worlds of this process. A test of the tests plants one
//! after the other.

use std::sync::atomic::{AtomicUsize, Ordering};

pub use flashfront_engine::Canary;

/// Number of the planted one in [`Canary::ALL`], from 1.
static PLANTED: AtomicUsize = AtomicUsize::new(0);

/// Plants a bug, or none.
pub fn plant(canary: Option<Canary>) {
    let number = canary.and_then(|canary| Canary::ALL.iter().position(|it| it.0 == canary));
    PLANTED.store(number.map_or(0, |number| number + 1), Ordering::SeqCst);
}

/// The bug that is planted.
#[must_use]
pub fn planted() -> Option<Canary> {
    let number = PLANTED.load(Ordering::SeqCst).checked_sub(1)?;
    Canary::ALL.get(number).map(|it| it.0)
}
