// SPDX-License-Identifier: MIT OR Apache-2.0
//! `serve --emulate-cache NAME`, `--emulate-origin NAME`: slows the daemon's devices down to a
//! model's pace.
//!
//! The models are those of `flashfront sim`. So a real daemon under real clients can be measured on
//! a disk that isn't there. Bytes are never touched, only their completion is late. I/O that takes
//! longer on the real device takes longer. A file smaller than the device is its beginning. Seeks
//! are as short, and tracks as long, as on a small part of the large disk. Superblocks are read
//! before and written past it, like with `--inject`.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use flashfront_device::Device;
use flashfront_device::sim::{Known, known};
use flashfront_device::wrap::Delay;
use flashfront_serve::daemon::{Hooks, Wrap};

/// A device by its name.
pub(crate) fn name() -> impl TypedValueParser<Value = Known> {
    let values = known().into_iter().map(|known| PossibleValue::new(known.name).help(known.summary));
    PossibleValuesParser::new(values).map(|name| {
        let mut all = known().into_iter();
        all.find(|known| known.name == name).expect("the parser accepts names of known devices only")
    })
}

/// Puts the paces on the devices, and says so. All cache devices get the same one, and all origins.
pub(crate) fn arm(cache: Option<Known>, origin: Option<Known>, hooks: &mut Hooks) {
    for (known, option) in [(cache, "--emulate-cache"), (origin, "--emulate-origin")] {
        let Some(Known { name, summary, .. }) = known else { continue };
        tracing::warn!(
            "A DEVICE IS EMULATED ({option} {name}): it is slowed down to the pace of this model, for measurements: {summary}"
        );
    }
    if let Some(cache) = cache {
        (hooks.wrap_cache, hooks.wrap_mirror) = (Some(paced(cache)), Some(paced(cache)));
    }
    if let Some(origin) = origin {
        hooks.wrap_origin = Some(paced(origin));
    }
}

fn paced(known: Known) -> Wrap {
    Box::new(move |device| -> Box<dyn Device> { Box::new(Delay::beginning_of(device, known.model, known.size_bytes)) })
}

#[cfg(test)]
mod tests;
