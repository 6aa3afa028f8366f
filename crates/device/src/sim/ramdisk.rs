// SPDX-License-Identifier: MIT OR Apache-2.0
//! A disk in RAM and virtual time, with a volatile write cache and a power switch.
//!
//! Completions come after a fixed latency plus seeded jitter, so they reorder. A write is visible
//! from its completion on. It is *unflushed* until a flush submitted after that completion has
//! completed. [`RamDisk::crash`] makes the disk that the power cut left: each unflushed write and
//! each write in flight is kept, lost or torn on its own. Same calls, same seed: same disk.
//!
//! Unlike a real disk it does not fail, lie about flushes or misdirect writes;
//! [`crate::wrap::Inject`] does. It does not tear within a 512-byte sector.

use flashfront_engine::{BLOCK_BYTES, Extent, Memory, Op, Time, put_extents};

use super::image::{Content, Image};
use crate::arena::Grip;
use crate::{Arena, Device, DeviceIo, Done, Geometry, Rng};

const SECTOR: u64 = flashfront_engine::SECTOR_BYTES;
/// The byte of discarded ranges: no code may rely on zeroes.
const DISCARDED: u8 = 0xdd;

/// The properties of a [`RamDisk`].
#[derive(Clone, Copy, Debug)]
pub struct RamSpec {
    /// The size, a multiple of the logical block.
    pub size_bytes: u64,
    /// 512 or 4096.
    pub logical_block_bytes: u32,
    /// The answer to [`Geometry::rotational`].
    pub rotational: Option<bool>,
    /// Time from submission to completion of every I/O.
    pub latency_ns: u64,
    /// The most that is added to the latency, at random.
    pub jitter_ns: u64,
    /// The seed of the jitter.
    pub seed: u64,
    /// What no flush has covered is lost as a whole, by a power cut and with the program that wrote
    /// it. A flush in flight makes all durable that it covers, or nothing: a volume in an object
    /// store.
    pub whole_flushes: bool,
}

impl Default for RamSpec {
    /// 64 MiB, blocks of 512 bytes, 100 us and up to 50 more.
    fn default() -> Self {
        Self {
            size_bytes: 64 << 20,
            logical_block_bytes: 512,
            rotational: Some(false),
            latency_ns: 100_000,
            jitter_ns: 50_000,
            seed: 0,
            whole_flushes: false,
        }
    }
}

/// The fate of writes that no flush has covered: at a power cut, or at the end of the program that
/// wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// All are on the medium, also those in flight.
    Kept,
    /// All are lost.
    Lost,
    /// Some sectors of each are on the medium.
    Torn,
    /// Each is kept, lost or torn on its own; those in flight also in any order.
    Mixed,
    /// The power stays, and the volatile cache with it: its writes are as unflushed as they were.
    /// Only the program that wrote them is gone.
    ///
    /// A write in flight is there, or not, or its beginning is, in any order.
    Killed,
}

#[derive(Clone, Debug)]
struct Write {
    offset: u64,
    content: Content,
}

#[derive(Clone, Debug)]
enum Work {
    Read(Grip),
    Write(Write),
    /// The first writes that were ever completed become durable, this many.
    Flush(u64),
    Map(Grip),
}

impl Work {
    const fn write(&self) -> Option<&Write> {
        match self {
            Self::Write(write) => Some(write),
            _ => None,
        }
    }
}

#[derive(Clone, Debug)]
struct Pending {
    due: Time,
    /// Order of submission, which decides between equal moments.
    number: u64,
    io: DeviceIo,
    work: Work,
}

/// A disk in RAM.
#[derive(Clone, Debug)]
pub struct RamDisk {
    spec: RamSpec,
    rng: Rng,
    live: Image,
    durable: Image,
    /// Completed and not flushed, in order of completion.
    unflushed: std::collections::VecDeque<Write>,
    /// Writes ever made durable = number of the first in `unflushed`.
    flushed: u64,
    pending: Vec<Pending>,
    submitted: u64,
}

impl RamDisk {
    /// A disk full of zeroes.
    #[must_use]
    pub fn new(spec: RamSpec) -> Self {
        assert!(spec.size_bytes.is_multiple_of(u64::from(spec.logical_block_bytes)), "a disk is whole blocks");
        Self {
            spec,
            rng: Rng::new(spec.seed),
            live: Image::default(),
            durable: Image::default(),
            unflushed: std::collections::VecDeque::new(),
            flushed: 0,
            pending: Vec::new(),
            submitted: 0,
        }
    }

    /// The disk is larger from now on. Its new part holds zeroes.
    pub fn grow(&mut self, size_bytes: u64) {
        self.spec.size_bytes = self.spec.size_bytes.max(size_bytes);
    }

    /// The bytes that a read would find now.
    pub fn peek(&self, offset: u64, out: &mut [u8]) {
        self.live.read(offset, out);
    }

    /// Changes bytes on the medium behind everybody's back, durably.
    pub fn poke(&mut self, offset: u64, data: &[u8]) {
        self.live.write(offset, data);
        self.durable.write(offset, data);
    }

    /// Flushes at once what was completed, as [`Op::Flush`] does in its time.
    pub fn flush(&mut self) {
        for write in self.unflushed.drain(..) {
            self.durable.apply(write.offset, &write.content, 0, write.content.len());
            self.flushed += 1;
        }
    }

    /// Drops writes that are completed and not flushed, as a disk or a page cache does that can't
    /// write them. They are still read, but never on the medium, whatever is flushed later.
    pub fn drop_unflushed(&mut self) {
        self.flushed += self.unflushed.len() as u64;
        self.unflushed.clear();
    }

    /// Flips one bit of the byte at `offset`, at rest: the medium rots.
    pub fn corrupt(&mut self, offset: u64) {
        let bit = 1 << self.rng.below(8);
        for image in [&mut self.live, &mut self.durable] {
            let mut byte = [0];
            image.read(offset, &mut byte);
            image.write(offset, &[byte[0] ^ bit]);
        }
        for write in &mut self.unflushed {
            let at = offset.checked_sub(write.offset);
            if let (Some(at), Content::Bytes(bytes)) = (at, &mut write.content)
                && let Some(byte) = bytes.get_mut(at as usize)
            {
                *byte ^= bit;
            }
        }
    }

    /// Whether a power cut now would cost anything: something is unflushed or being written.
    #[must_use]
    pub fn at_risk(&self) -> bool {
        !self.unflushed.is_empty() || self.pending.iter().any(|pending| pending.work.write().is_some())
    }

    /// I/Os submitted and not completed.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }

    /// Completed writes that no flush has covered yet.
    #[must_use]
    pub fn unflushed_writes(&self) -> usize {
        self.unflushed.len()
    }

    /// The disk after a power cut now: nothing in flight, everything on it durable (but with
    /// [`Fate::Killed`]). The seed decides what the fate leaves open.
    #[must_use]
    pub fn crash(&self, seed: u64, fate: Fate) -> Self {
        let mut rng = Rng::new(seed);
        if self.spec.whole_flushes {
            return self.as_flushed(rng, fate);
        }
        if fate == Fate::Killed {
            return self.killed(rng);
        }
        let mut image = self.durable.clone();
        let mut flying: Vec<&Write> = self.pending.iter().filter_map(|pending| pending.work.write()).collect();
        if fate == Fate::Mixed {
            // Writes in flight have no order among themselves.
            for i in (1..flying.len()).rev() {
                flying.swap(i, rng.below(i as u64 + 1) as usize);
            }
        }
        for write in self.unflushed.iter().chain(flying) {
            let len = write.content.len();
            match (fate, rng.below(3)) {
                (Fate::Kept, _) | (Fate::Mixed, 0) => image.apply(write.offset, &write.content, 0, len),
                (Fate::Lost | Fate::Killed, _) | (Fate::Mixed, 1) => {}
                (Fate::Torn, _) | (Fate::Mixed, _) => tear(&mut image, write, &mut rng),
            }
        }
        Self { live: image.clone(), durable: image, rng, ..Self::new(RamSpec { seed, ..self.spec }) }
    }

    /// The disk as a flush has left it: the last one that was completed, or one in flight.
    fn as_flushed(&self, mut rng: Rng, fate: Fate) -> Self {
        let mut image = self.durable.clone();
        let covered =
            self.pending.iter().filter_map(|it| if let Work::Flush(upto) = it.work { Some(upto) } else { None });
        let kept = match fate {
            Fate::Kept => true,
            Fate::Lost => false,
            Fate::Torn | Fate::Mixed | Fate::Killed => rng.below(2) == 0,
        };
        let upto = covered.filter(|_| kept).max().unwrap_or(0);
        for write in self.unflushed.iter().take(upto.saturating_sub(self.flushed) as usize) {
            image.apply(write.offset, &write.content, 0, write.content.len());
        }
        Self { live: image.clone(), durable: image, rng, ..Self::new(self.spec) }
    }

    fn killed(&self, mut rng: Rng) -> Self {
        let mut next = Self { pending: Vec::new(), ..self.clone() };
        let mut flying: Vec<Write> = self.pending.iter().filter_map(|pending| pending.work.write()).cloned().collect();
        while !flying.is_empty() {
            let mut write = flying.swap_remove(rng.below(flying.len() as u64) as usize);
            match rng.below(3) {
                0 => continue,
                1 => write.content.truncate(rng.below(write.content.len() / SECTOR + 1) * SECTOR),
                _ => {}
            }
            next.live.apply(write.offset, &write.content, 0, write.content.len());
            next.unflushed.push_back(write);
        }
        next.rng = rng;
        next
    }

    fn work(&mut self, io: &DeviceIo, arena: &Arena) -> Work {
        let fill = |byte| Work::Write(Write { offset: io.offset, content: Content::Fill { byte, len: io.len } });
        let span = || io.span.expect("checked on submission");
        match io.op {
            // Memory of now, as a kernel takes it: the buffer may have other memory in the end.
            Op::Read => Work::Read(arena.grip(span())),
            // The bytes are taken now: a power cut during the flight must find them.
            Op::Write => {
                let bytes = arena.bytes(span()).into();
                Work::Write(Write { offset: io.offset, content: Content::Bytes(bytes) })
            }
            Op::Flush => Work::Flush(self.flushed + self.unflushed.len() as u64),
            Op::Discard => fill(DISCARDED),
            Op::Zero | Op::Punch => fill(0),
            Op::Map => Work::Map(arena.grip(span())),
        }
    }

    fn complete(&mut self, pending: Pending) -> Done {
        let token = pending.io.token;
        match pending.work {
            Work::Read(mut memory) => {
                let mut bytes = vec![0; pending.io.len as usize];
                self.live.read(pending.io.offset, &mut bytes);
                memory.write(&bytes);
            }
            Work::Write(write) => {
                self.live.apply(write.offset, &write.content, 0, write.content.len());
                self.unflushed.push_back(write);
            }
            // Blocks of zeroes are holes.
            Work::Map(mut memory) => {
                let Pending { io: DeviceIo { offset, len, .. }, .. } = pending;
                let extents = (offset..offset + len).step_by(BLOCK_BYTES as usize).map(|at| {
                    let mut bytes = [0; BLOCK_BYTES as usize];
                    let here = &mut bytes[..BLOCK_BYTES.min(offset + len - at) as usize];
                    self.live.read(at, here);
                    Extent { bytes: here.len() as u64, hole: here.iter().all(|byte| *byte == 0) }
                });
                let mut bytes = vec![0; memory.len()];
                put_extents(&mut bytes, extents);
                memory.write(&bytes);
            }
            Work::Flush(upto) => {
                while self.flushed < upto
                    && let Some(write) = self.unflushed.pop_front()
                {
                    self.durable.apply(write.offset, &write.content, 0, write.content.len());
                    self.flushed += 1;
                }
            }
        }
        Done { token, result: Ok(()) }
    }
}

/// Writes some of the sectors: the first ones, the last ones, or each by the toss of a coin. A huge
/// discard is not torn by the coin.
fn tear(image: &mut Image, write: &Write, rng: &mut Rng) {
    let len = write.content.len();
    let cut = rng.below(len / SECTOR + 1) * SECTOR;
    let ways = if matches!(write.content, Content::Bytes(_)) { 3 } else { 2 };
    match rng.below(ways) {
        0 => image.apply(write.offset, &write.content, 0, cut),
        1 => image.apply(write.offset, &write.content, cut, len),
        _ => {
            for at in (0..len).step_by(SECTOR as usize) {
                if rng.below(2) == 0 {
                    image.apply(write.offset, &write.content, at, at + SECTOR);
                }
            }
        }
    }
}

impl Device for RamDisk {
    fn submit(&mut self, now: Time, io: DeviceIo, arena: &mut Arena) {
        self.geometry().check(&io);
        debug_assert!(!self.pending.iter().any(|pending| pending.io.token == io.token), "bug: {io:?} repeats a token");
        let work = self.work(&io, arena);
        let due = now.plus_ns(self.spec.latency_ns + self.rng.below(self.spec.jitter_ns));
        self.submitted += 1;
        self.pending.push(Pending { due, number: self.submitted, io, work });
    }

    fn kick(&mut self) {}

    fn poll(&mut self, now: Time, _arena: &mut Arena, done: &mut Vec<Done>) {
        let mut due: Vec<_> = self.pending.extract_if(.., |pending| pending.due <= now).collect();
        due.sort_unstable_by_key(|pending| (pending.due, pending.number));
        for pending in due {
            done.push(self.complete(pending));
        }
    }

    fn next_event(&self) -> Option<Time> {
        self.pending.iter().map(|pending| pending.due).min()
    }

    fn geometry(&self) -> Geometry {
        Geometry {
            size_bytes: self.spec.size_bytes,
            logical_block_bytes: self.spec.logical_block_bytes,
            rotational: self.spec.rotational,
        }
    }
}

#[cfg(test)]
mod tests;
