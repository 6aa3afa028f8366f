// SPDX-License-Identifier: MIT OR Apache-2.0
//! A daemon without clients: replays the log, destages everything, stops cleanly.
//!
//! Its guards, locks and marks are those of a daemon with clients, since it is the same code. An
//! origin that keeps refusing its writes ends it, with the rest still dirty. No client waits here
//! that would want them tried for ever (test: `an_origin_that_refuses_writes_ends_it`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use flashfront_device::real::{Prefer, Reactor};
use flashfront_engine::{Control, DeviceError, Event, Input};
use mio::{Poll, Waker};
use serde::Serialize;

use super::error::failed;
use super::open::options;
use super::{Daemon, Ended, Hooks, ServeError, begin, opened};
use crate::config::Config;
use crate::control::Caller;
use crate::pump::WAKER;
use crate::report::{LostRange, lost_ranges};

#[cfg(test)]
mod tests;

/// A destage gives up when its writes were refused for this long: three tries, with the engine's
/// pauses of 1 and 2 s between them.
const GIVE_UP_AFTER: Duration = Duration::from_secs(3);

/// How a destage ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DestageReport {
    /// Whether the origin is complete: nothing is dirty.
    pub complete: bool,
    /// Blocks that became clean.
    pub blocks_written: u64,
    /// Blocks that are still dirty, lost ones among them.
    pub blocks_left: u64,
    /// Dirty blocks that can't be read from the cache device, or are corrupt there.
    pub lost_blocks: u64,
    /// The lost blocks by place.
    pub lost: Vec<LostRange>,
    /// Whether the destage was interrupted.
    pub interrupted: bool,
    /// The cache device failed; the cache is marked, and not to be used again.
    pub cache_failed: bool,
    /// Why the origin refused the last writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin_error: Option<String>,
}

/// Destages everything while no daemon runs. `progress` hears of blocks done and all blocks.
///
/// # Errors
/// What [`super::run`] is refused for; that not all could be written is no error but in the report.
pub fn destage(
    config: &Config,
    hooks: &Hooks,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<DestageReport, ServeError> {
    config.check_devices()?;
    let opened = opened(config)?;
    let options = options(config, &opened)?;
    let poll = Poll::new().map_err(failed("epoll"))?;
    let waker = Arc::new(Waker::new(poll.registry(), WAKER).map_err(failed("eventfd"))?);
    hooks.stop.wakes(&waker);
    let (_caller, calls) = Caller::new(waker);
    let reactor = Reactor::new(Prefer::Auto)?;
    let interrupted = DestageReport { interrupted: true, ..DestageReport::default() };
    if hooks.stop.is_asked() {
        return Ok(DestageReport { blocks_left: opened.superblock.dirty_blocks, ..interrupted });
    }
    let left = opened.superblock.dirty_blocks;
    let daemon = begin(config, opened, options, reactor, hooks, poll, calls)?;
    let Some(mut daemon) = daemon.opened()? else {
        return Ok(DestageReport { blocks_left: left, ..interrupted });
    };
    daemon.ready = Some(Instant::now());
    let (clean, origin_error) = drain(&mut daemon, progress)?;
    let status = daemon.pump.engine().status();
    let records = &daemon.pump.engine().superblock().origins;
    let name = |id| records.iter().find(|it| it.id == id).map_or_else(String::new, |it| it.name.clone());
    let report = DestageReport {
        complete: status.blocks_dirty == 0,
        blocks_written: status.counters.destaged_blocks,
        blocks_left: status.blocks_dirty,
        lost_blocks: status.lost.len() as u64,
        lost: lost_ranges(&status.lost, name),
        interrupted: daemon.stop.is_asked(),
        cache_failed: status.cache_failed,
        origin_error: origin_error.map(|error| error.to_string()),
    };
    let ended = daemon.close(clean)?;
    Ok(DestageReport { cache_failed: matches!(ended, Ended::CacheFailed { .. }), ..report })
}

/// Drains, then stops the engine.
///
/// Says whether it stopped cleanly, and the origin's last error if that ended the drain.
fn drain(daemon: &mut Daemon, progress: &mut dyn FnMut(u64, u64)) -> Result<(bool, Option<DeviceError>), ServeError> {
    let all = daemon.pump.engine().status().blocks_dirty;
    let mut left = all;
    let mut refused: Option<(Instant, DeviceError)> = None;
    let mut stopping = false;
    daemon.pump.apply(Input::Control(Control::Drain(true)));
    loop {
        let mut over = daemon.stop.is_asked();
        let news: Vec<Event> = daemon.pump.news().collect();
        for event in news {
            match event {
                Event::Drained => over = true,
                Event::Stopped => return Ok((true, refused.map(|(_, error)| error))),
                Event::DestageFailed { error, .. } => {
                    let since = refused.map_or_else(Instant::now, |(since, _)| since);
                    refused = Some((since, error));
                    over |= since.elapsed() >= GIVE_UP_AFTER;
                }
                _ => {}
            }
            daemon.tell(event);
        }
        let now = daemon.pump.engine().status().blocks_dirty;
        if now < left {
            (left, refused) = (now, refused.filter(|_| stopping));
            progress(all - left, all);
        }
        if over && !stopping {
            stopping = true;
            daemon.pump.apply(Input::Control(Control::Drain(false)));
            daemon.pump.apply(Input::Control(Control::Stop));
        }
        if daemon.stop.is_at_once() {
            return Ok((false, None));
        }
        daemon.turn()?;
    }
}
