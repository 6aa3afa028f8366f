// SPDX-License-Identifier: MIT OR Apache-2.0
//! An operator's wish to have a range of a volume in the cache: checked here, carried out by
//! [`crate::frontend::prefetch`].

use std::ops::Range;

use flashfront_engine::{Mode, SECTOR_BYTES};

use crate::config::Config;
use crate::control::{PREFETCH_BYTES_MAX, Reply, Response};
use crate::frontend::prefetch::Order;
use crate::pump::Pump;

/// Begins to bring a range, whose end is answered. An error: why it is refused.
pub(super) fn prefetch(
    (config, pump): (&Config, &mut Pump),
    name: &str,
    bytes: Range<u64>,
    replace: bool,
    reply: &Reply,
) -> Result<(), String> {
    if !config.detached.is_empty() {
        return Err("the cache is detached, so nothing can be prefetched; `flashfront cache attach` gives the volumes one first".to_owned());
    }
    if config.without_cache {
        return Err(
            "the origin is served without its cache (serve --without-cache), so nothing can be prefetched; stop, and serve it with the cache".to_owned(),
        );
    }
    let Some(volume) = config.volumes.iter().find(|volume| volume.name == name) else {
        let known: Vec<&str> = config.volumes.iter().map(|volume| volume.name.as_str()).collect();
        return Err(format!("no volume of that name; there are: {}", known.join(", ")));
    };
    let (origin, status) = (volume.id, pump.engine().status());
    let Some(found) = status.origins.iter().find(|it| it.id == origin) else {
        return Err("the volume is being removed; nothing is brought for it".to_owned());
    };
    if found.mode == Mode::Passthrough {
        return Err(format!(
            "volume {name} is in passthrough mode, in which nothing enters the cache; choose another mode with `flashfront set` first"
        ));
    }
    let inside = bytes.start < bytes.end && bytes.end <= found.size_bytes;
    if !inside || bytes.end - bytes.start > PREFETCH_BYTES_MAX {
        return Err(format!(
            "bytes {}..{} can't be prefetched: volume {name} has {} bytes, and at most {PREFETCH_BYTES_MAX} are asked for at a time",
            bytes.start, bytes.end, found.size_bytes
        ));
    }
    let (begin, end, reply) = (bytes.start / SECTOR_BYTES, bytes.end.div_ceil(SECTOR_BYTES), reply.clone());
    let ended = Box::new(move |result: Result<(), _>| {
        let failed = |error| Response::Error {
            message: format!(
                "the volume can't be read there ({error:?}); what was brought so far stays, and the daemon's log says more"
            ),
        };
        // An operator that has gone is no error.
        let _ = reply.send(result.map_or_else(failed, |()| Response::Done));
    });
    let order = Order { origin, begin, end, replace, ended };
    pump.prefetch(order).map_err(|error| error.to_string())
}
