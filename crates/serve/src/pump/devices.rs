// SPDX-License-Identifier: MIT OR Apache-2.0
//! The devices of a pump: their I/O under way, and which of them hang.
//!
//! The pump carries I/O to them and completions from them; nothing here knows the engine.

use std::collections::VecDeque;
use std::time::Duration;

use flashfront_device::real::Reactor;
use flashfront_device::{Arena, Device, DeviceIo, Done, Hang};
use flashfront_engine::{DeviceId, Time};

/// The devices of a cache.
pub struct Devices {
    /// The cache device, its mirror, the origins: few enough to look through.
    pub all: Vec<(DeviceId, Box<dyn Device>)>,
    /// Does the I/O of the real devices among them.
    pub reactor: Reactor,
}

/// A device hangs, or no longer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HangNews {
    /// The device.
    pub(crate) device: DeviceId,
    /// How long the device had not answered.
    pub(crate) silent: Duration,
    /// The I/O that has no answer; none: the device answers again.
    pub(crate) hang: Option<Hang>,
}

/// A device, and how it answers.
struct Attached {
    id: DeviceId,
    device: Box<dyn Device>,
    /// I/Os that have not ended.
    under_way: u64,
    /// When the last I/O ended, or the first of those under way began.
    moved: Time,
    /// Since when the device hangs.
    hung_since: Option<Time>,
}

impl Attached {
    fn new((id, device): (DeviceId, Box<dyn Device>)) -> Self {
        Self { id, device, under_way: 0, moved: Time(0), hung_since: None }
    }
}

/// The devices at work.
pub(crate) struct DeviceSet {
    attached: Vec<Attached>,
    reactor: Reactor,
    /// Devices that hung when they were removed.
    left: Vec<Box<dyn Device>>,
    news: VecDeque<HangNews>,
    /// Ended I/O that the pump has not taken yet; it is fetched into `fetched` first.
    done: VecDeque<Done>,
    fetched: Vec<Done>,
}

impl DeviceSet {
    pub(super) fn new(devices: Devices) -> Self {
        Self {
            attached: devices.all.into_iter().map(Attached::new).collect(),
            reactor: devices.reactor,
            left: Vec::new(),
            news: VecDeque::new(),
            done: VecDeque::new(),
            fetched: Vec::new(),
        }
    }

    /// Does the I/O of real devices.
    pub(crate) const fn reactor(&self) -> &Reactor {
        &self.reactor
    }

    /// Counts the I/Os of a device that have not ended.
    pub(crate) fn in_flight(&self, id: DeviceId) -> u64 {
        self.attached.iter().find(|it| it.id == id).map_or(0, |it| it.under_way)
    }

    /// Finds a device that has I/O under way and has ended none for `longest`, since `since` at the
    /// earliest. Returns it, and for how long it has been silent.
    pub(crate) fn silent(&self, now: Time, since: Time, longest: Duration) -> Option<(DeviceId, Duration)> {
        let silence = |it: &Attached| Duration::from_nanos(now.since_ns(it.moved.max(since)));
        let silent = self.attached.iter().find(|it| it.under_way > 0 && silence(it) >= longest);
        silent.map(|it| (it.id, silence(it)))
    }

    /// Closes a device that the engine no longer uses. A device that hangs is closed when it
    /// answers.
    pub(crate) fn remove(&mut self, id: DeviceId) {
        if let Some(at) = self.attached.iter().position(|it| it.id == id) {
            let removed = self.attached.remove(at);
            if removed.hung_since.is_some() {
                // The buffers of its I/O come back when it answers.
                self.left.push(removed.device);
            }
        }
    }

    /// Takes a device in the place of the one with this name, which the engine no longer uses.
    pub(crate) fn attach(&mut self, id: DeviceId, device: Box<dyn Device>) {
        self.remove(id);
        self.attached.push(Attached::new((id, device)));
    }

    /// Says how a device hangs, if it does, and for how long.
    pub(crate) fn hang(&self, now: Time, id: DeviceId) -> Option<(Hang, Duration)> {
        let attached = self.attached.iter().find(|it| it.id == id)?;
        attached.device.hang().map(|hang| (hang, Duration::from_nanos(now.since_ns(hang.since))))
    }

    /// Whether any device hangs.
    pub(crate) fn any_hangs(&self) -> bool {
        !self.left.is_empty() || self.attached.iter().any(|it| it.hung_since.is_some())
    }

    /// Takes the news about devices that hang, oldest first.
    pub(crate) fn hangs(&mut self) -> impl Iterator<Item = HangNews> + '_ {
        self.news.drain(..)
    }

    /// Ends all I/O before the daemon ends; says whether all has ended.
    ///
    /// I/O in flight is waited for up to `limit`, and not at all if a device hangs. I/O that has
    /// not ended keeps its buffers until the process ends.
    pub(crate) fn end_io(&self, limit: Duration) -> bool {
        self.reactor.finish(if self.any_hangs() { Duration::ZERO } else { limit })
    }

    /// Hands an I/O to its device.
    pub(super) fn submit(&mut self, now: Time, id: DeviceId, io: DeviceIo, arena: &mut Arena) {
        let attached = self.attached.iter_mut().find(|it| it.id == id);
        let attached = attached.expect("the engine knows only the superblock's devices, which are all open");
        if attached.under_way == 0 {
            attached.moved = now;
        }
        attached.under_way += 1;
        attached.device.submit(now, io, arena);
    }

    /// Starts the I/O that was submitted.
    pub(super) fn kick(&mut self) {
        for attached in &mut self.attached {
            attached.device.kick();
        }
    }

    /// Fetches I/O that has ended. Returns devices that hung and answer again.
    pub(super) fn fetch(&mut self, now: Time, arena: &mut Arena) -> Vec<DeviceId> {
        for attached in &mut self.attached {
            let before = self.fetched.len();
            attached.device.poll(now, arena, &mut self.fetched);
            let ended = (self.fetched.len() - before) as u64;
            if ended > 0 {
                attached.under_way -= ended;
                attached.moved = now;
            }
        }
        self.done.extend(self.fetched.drain(..));
        self.look_for_hangs(now, arena)
    }

    /// Notices devices that begin to hang and devices that answer again. Returns the latter.
    fn look_for_hangs(&mut self, now: Time, arena: &mut Arena) -> Vec<DeviceId> {
        let mut answer_again = Vec::new();
        for attached in &mut self.attached {
            let (hang, known) = (attached.device.hang(), attached.hung_since);
            if known.is_some() == hang.is_some() {
                continue;
            }
            attached.hung_since = hang.map(|hang| hang.since);
            let since = known.or(attached.hung_since).unwrap_or(now);
            let silent = Duration::from_nanos(now.since_ns(since));
            self.news.push_back(HangNews { device: attached.id, silent, hang });
            if hang.is_none() {
                answer_again.push(attached.id);
            }
        }
        for device in &mut self.left {
            device.poll(now, arena, &mut self.fetched);
        }
        // The engine was told long ago that this I/O failed.
        self.fetched.clear();
        self.left.retain(|device| device.hang().is_some());
        answer_again
    }

    /// Takes the oldest I/O that was fetched.
    pub(super) fn take_done(&mut self) -> Option<Done> {
        self.done.pop_front()
    }

    /// How many fetched I/Os are left to take.
    pub(super) fn fetched(&self) -> usize {
        self.done.len()
    }

    /// When the next device needs a poll though no I/O ends.
    pub(super) fn next_event(&self) -> Option<Time> {
        let attached = self.attached.iter().filter_map(|it| it.device.next_event());
        attached.chain(self.left.iter().filter_map(|device| device.next_event())).min()
    }
}

#[cfg(test)]
mod tests;
