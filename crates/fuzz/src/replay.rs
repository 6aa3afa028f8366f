// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening a cache whose device holds anything, and then using it.
//!
//! The engine may refuse to open, and it may fail requests. It may not panic, ask a device for a
//! place outside of it, or hang. It may not return bytes that were never written to the place that
//! was read.

use flashfront_device::Device;
use flashfront_engine::format::Superblock;
use flashfront_engine::{Control, Engine, MirrorStatus, Mode, OriginId, RequestOp, SECTOR_BYTES};
use flashfront_proof::{Content, World, identify};

use crate::Target;
use crate::bytes::Bytes;
use crate::cache::{Cache, change};
use crate::patch::Damaged;

pub(crate) const TARGET: Target = Target {
    name: "replay",
    summary: "opening a damaged or forged cache, mirrored or not, and using it",
    input_bytes_max: 512,
    heap_bytes_max: 64 << 20,
    body,
};

/// Requests and orders of one input at most.
const ACTIONS_MAX: u64 = 24;

fn body(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let damaged = Damaged::new(Cache::all(), &mut bytes);
    let mut world = damaged.cache.world(&damaged.blocks);
    if world.mirror.is_some() {
        pair(&mut world, &damaged, &mut bytes);
    }
    if !is_servable(&world, damaged.cache) || world.open().is_err() {
        return;
    }
    Run { world, writes: damaged.cache.writes, garbage: damaged.forged, reads: Vec::new() }.go(&mut bytes);
}

/// What happened to the members of a mirrored cache: the damage is on the first one so far.
fn pair(world: &mut World, damaged: &Damaged, bytes: &mut Bytes<'_>) {
    match bytes.below(4) {
        0 => {}
        1 => change(world, 1, &damaged.blocks),
        2 => {
            let whole = damaged.cache.world(&[]);
            world.cache = whole.cache;
            change(world, 1, &damaged.blocks);
        }
        _ => {
            world.take_away(bytes.below(2) as u8);
            world.alone = true;
        }
    }
}

/// Whether a daemon with these devices would come to open it: it compares them with the superblock
/// first.
pub(crate) fn is_servable(world: &World, cache: &Cache) -> bool {
    let Some(Ok(superblock)) = world.chosen() else { return false };
    let first = Superblock::of_image(&cache.bytes).expect("it is sound there");
    let places = |it: &Superblock| it.origins.iter().map(|it| (it.id, it.size_bytes)).collect::<Vec<_>>();
    !superblock.failed
        && superblock.cache_bytes == cache.bytes.len() as u64
        && places(&superblock) == places(&first)
        && Engine::new(superblock, world.spec.engine_options(), world.now).is_ok()
}

struct Run {
    world: World,
    /// The number of the last write.
    writes: u32,
    /// Garbage is possible: a discard, a forgery.
    garbage: bool,
    /// What was asked: id, origin, sector.
    reads: Vec<(flashfront_engine::RequestId, usize, u64)>,
}

impl Run {
    fn go(&mut self, bytes: &mut Bytes<'_>) {
        for _ in 0..bytes.below(ACTIONS_MAX + 1) {
            self.act(bytes);
        }
        self.world.finish_requests();
        self.judge();
        // All of it once more, as a client would who copies the volume.
        for origin in 0..self.world.spec.origins.len() {
            let sectors = self.world.spec.origins[origin].size_bytes / SECTOR_BYTES;
            self.request(RequestOp::Read, origin, 0, sectors);
        }
        self.world.finish_requests();
        self.judge();
        self.world.stop();
    }

    fn act(&mut self, bytes: &mut Bytes<'_>) {
        let origins = self.world.spec.origins.len();
        let origin = bytes.below(origins as u64) as usize;
        let id = OriginId(origin as u32);
        let unit = u64::from(self.world.spec.origins[origin].logical_block_bytes);
        let all = self.world.spec.origins[origin].size_bytes / unit;
        match bytes.below(10 + u64::from(self.world.mirror.is_some())) {
            op @ 0..=4 => {
                let first = bytes.below(all);
                let count = (1 + bytes.below(64)).min(all - first);
                let op = match op {
                    0 | 1 => RequestOp::Read,
                    2 => RequestOp::Write,
                    3 => RequestOp::WriteZeroes { may_discard: false },
                    _ => RequestOp::Discard,
                };
                let sectors = unit / SECTOR_BYTES;
                self.request(op, origin, first * sectors, count * sectors);
            }
            5 => self.request(RequestOp::Flush, origin, 0, 0),
            6 => self.world.pass(bytes.below(256) * 20_000_000),
            7 => self.world.control(Control::SetMode { origin: id, mode: bytes.pick(&Mode::ALL) }),
            8 => self.world.control(Control::Drain(bytes.below(2) == 0)),
            10 => self.add_mirror(bytes.below(2) == 0),
            _ => {
                let number = bytes.number(8);
                let limit = bytes.below(2) == 0;
                self.world.control(if limit {
                    Control::SetDirtyLimit { blocks: number }
                } else {
                    Control::SetSequentialBypass { bytes: number }
                });
            }
        }
    }

    /// Gives the cache its other member again, if it has lost it: the same device, or one full of
    /// garbage.
    fn add_mirror(&mut self, same: bool) {
        let MirrorStatus::Alone { member } = self.world.engine().status().mirror else { return };
        let idle = self.world.member_mut(1 - member).is_some_and(|disk| disk.next_event().is_none());
        if idle && !same {
            self.world.take_away(1 - member);
        }
        if idle {
            self.world.control(Control::AddMirror);
        }
    }

    fn request(&mut self, op: RequestOp, origin: usize, sector: u64, sectors: u64) {
        let write = (op == RequestOp::Write).then(|| {
            self.writes += 1;
            self.writes
        });
        self.garbage |= op == RequestOp::Discard;
        let id = self.world.submit(op, origin, sector, sectors, false, write);
        if op == RequestOp::Read {
            self.reads.push((id, origin, sector));
        }
    }

    /// What was read was once written there, or never was.
    fn judge(&mut self) {
        for answer in std::mem::take(&mut self.world.answers) {
            let Some((_, origin, first)) = self.reads.iter().find(|(id, ..)| *id == answer.id) else { continue };
            if self.garbage || answer.result.is_err() {
                continue;
            }
            // One sector of each block is enough: a block is verified as a whole.
            let sectors = (*first..).zip(answer.data.chunks(SECTOR_BYTES as usize));
            for (sector, bytes) in sectors.filter(|(sector, _)| sector % 8 == sector / 8 % 8) {
                let found = identify(*origin, sector, bytes);
                let known = match found {
                    Content::Zero => true,
                    Content::Write(number) => number <= self.writes,
                    Content::Any => false,
                };
                assert!(known, "garbage was read at sector {sector} of origin {origin}: {found:?}");
            }
        }
        self.reads.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_damaged_opens() {
        for cache in 0..Cache::all().len() as u8 {
            for members in [[0, 0], [1, 0], [2, 0], [3, 0], [3, 1]] {
                let damaged = Damaged::new(Cache::all(), &mut Bytes::new(&[cache, 0]));
                let mut world = damaged.cache.world(&damaged.blocks);
                if world.mirror.is_some() {
                    pair(&mut world, &damaged, &mut Bytes::new(&members));
                }
                assert!(is_servable(&world, damaged.cache), "cache {cache}, members {members:?}");
                let opened = world.open();
                assert!(opened.is_ok(), "cache {cache}, members {members:?}: {opened:?}");
            }
        }
    }
}
