// SPDX-License-Identifier: MIT OR Apache-2.0
//! An operator's wish to have a range of a volume in the cache: checked here, carried out by
//! [`crate::frontend::prefetch`].

use std::ops::Range;

use flashfront_engine::{BLOCK_BYTES, Mode, OriginId, OriginStatus, SECTOR_BYTES};

use crate::config::Config;
use crate::control::{PREFETCH_BYTES_MAX, Reply, Response};
use crate::frontend::prefetch::{Ended, Failed, Order, What};
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
    let (origin, found) = origin_of(config, pump, name)?;
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
    let (begin, end) = (bytes.start / SECTOR_BYTES, bytes.end.div_ceil(SECTOR_BYTES));
    let order = Order { origin, begin, end, what: What::Bring { replace }, ended: answer(reply) };
    pump.prefetch(order).map_err(|error| error.to_string())
}

/// Begins to see whether a volume has `bytes` at `offset`, which is answered. An error: why that is
/// refused.
pub(super) fn compare(
    (config, pump): (&Config, &mut Pump),
    name: &str,
    offset: u64,
    bytes: Vec<u8>,
    reply: &Reply,
) -> Result<(), String> {
    let (origin, found) = origin_of(config, pump, name)?;
    let begin = offset - offset % BLOCK_BYTES;
    let end = (begin + BLOCK_BYTES).min(found.size_bytes);
    if bytes.is_empty() || offset.saturating_add(bytes.len() as u64) > end {
        return Err(format!("bytes at {offset} can't be compared: they are not within one block of volume {name}"));
    }
    let what = What::Compare { skip: (offset - begin) as u32, bytes };
    let (begin, end) = (begin / SECTOR_BYTES, end / SECTOR_BYTES);
    let order = Order { origin, begin, end, what, ended: answer(reply) };
    pump.prefetch(order).map_err(|error| error.to_string())
}

/// Finds a volume by its name, and what the engine knows of it.
fn origin_of(config: &Config, pump: &Pump, name: &str) -> Result<(OriginId, OriginStatus), String> {
    let Some(volume) = config.volumes.iter().find(|volume| volume.name == name) else {
        let known: Vec<&str> = config.volumes.iter().map(|volume| volume.name.as_str()).collect();
        return Err(format!("no volume of that name; there are: {}", known.join(", ")));
    };
    let status = pump.engine().status();
    let found = status.origins.iter().find(|it| it.id == volume.id);
    let found = found.ok_or_else(|| "the volume is being removed; nothing is brought for it".to_owned())?;
    Ok((volume.id, *found))
}

/// Answers an order when it has ended. An operator that has gone is no error.
fn answer(reply: &Reply) -> Ended {
    let reply = reply.clone();
    Box::new(move |result| {
        let response = match result {
            Ok(()) => Response::Done,
            Err(Failed::OtherBytes) => Response::OtherBytes,
            Err(Failed::Request(error)) => Response::Error {
                message: format!(
                    "the volume can't be read there ({error:?}); what was brought so far stays, and the daemon's log says more"
                ),
            },
        };
        let _ = reply.send(response);
    })
}
