// SPDX-License-Identifier: MIT OR Apache-2.0
//! A plan is what a seed decides before anything runs. Parts of it can be taken away to make a
//! failure smaller.

use flashfront_device::Rng;
use flashfront_engine::{Destage, Durability, Mode, Options, policy};

use super::change::{Change, What};
use super::clients::{ClientPlan, client};
use super::extra::{self, Extra};
use super::pick::pick;
use crate::spec::{OriginSpec, WorldSpec};

/// The kinds of faults of the devices, besides power cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// No faults.
    None,
    /// The origins and the reads of the cache device fail with an error. Errors come now and then,
    /// in ranges, late, or for a part of an I/O. An origin may be gone for a while.
    Errors,
    /// The cache device's writes and flushes fail too, or the device is gone for good.
    CacheDies,
    /// The cache device lies. It has rot, flipped bits, lost and misdirected writes, and flushes
    /// that do nothing.
    CacheLies,
}

/// The plan of one cache's life.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The world of the life.
    pub spec: WorldSpec,
    /// The number of openings.
    pub generations: u64,
    /// The number of requests of one opening.
    pub requests: u64,
    /// The clients.
    pub clients: Vec<ClientPlan>,
    /// The number of requests for each control command; 0 = none.
    pub control_every: u64,
    /// Whether the daemon is killed at some of the moments at which the power would fail.
    pub kills: bool,
    /// The kind of faults.
    pub trouble: Trouble,
    /// Whether an origin whose flush fails drops the writes that the flush was for.
    pub fickle: bool,
    /// The number of requests for each fault that is ordered.
    pub faults_every: u64,
    /// The number of requests for each broken connection to an origin; 0 = none.
    pub breaks_every: u64,
    /// The number of requests for each pause; 0 = none.
    pub pause_every: u64,
    /// The longest pause.
    pub pause_ns: u64,
    /// The extras of this life; most lives have none.
    pub extras: Vec<Extra>,
}

/// The longest that an origin may take for an I/O, in half of the lives. The stalls of `trouble`
/// take up to twice as long.
const HANGS_AFTER_NS: u64 = 30_000_000_000;

impl Plan {
    /// The life that a seed stands for.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let rng = &mut Rng::new(seed);
        let mut spec = world(rng);
        let capacity = u64::from(spec.lanes * spec.segment_blocks * spec.segments_per_lane);
        let small = spec.origins.iter().map(|origin| origin.size_bytes / 512).min().unwrap_or(1);
        let clients: Vec<ClientPlan> = (0..1 + rng.below(4)).map(|_| client(rng, small)).collect();
        let longest = clients.iter().map(|client| client.sectors_max).max().unwrap_or(8);
        let generations = 1 + rng.below(4);
        // This has its own source of random numbers, so that older seeds stay the same lives.
        spec.options.ram_front_bytes = pick(&mut Rng::new(seed ^ 0xf207), &[0, 64 << 10, 1 << 20]);
        spec.mirrored = Rng::new(seed ^ 0x3177).below(3) == 0;
        spec.options.read_around_blocks = pick(&mut Rng::new(seed ^ 0xa209), &[0, 16, 16, 64]);
        // The budgets are: none; one that is used up at once, and is back after a pause; one that
        // is used up now and then.
        let budgets = [None, None, Some(16 << 20), Some(100 << 30)];
        spec.options.flash_writes_per_day_bytes = pick(&mut Rng::new(seed ^ 0xb0d9), &budgets);
        if spec.lanes > 1 {
            let mut rng = Rng::new(seed ^ 0xa9a27);
            spec.apart = pick(&mut rng, &[None, Some(0), Some(0), Some(2)]);
            spec.apart_while_opening = rng.below(3) == 0;
        }
        // Half of the lives with several lanes, and a quarter of those with one.
        spec.by_mail = Rng::new(seed ^ 0x3a11).below(if spec.lanes > 1 { 2 } else { 4 }) == 0;
        if spec.by_mail {
            spec.apart = None;
        }
        // Late I/O of a device that can only fail in part is waited for: such a device must not
        // fail as a whole.
        spec.origin_limit_ns = pick(&mut Rng::new(seed ^ 0x4a_96), &[None, Some(HANGS_AFTER_NS)]);
        spec.options.destage = pick(&mut Rng::new(seed ^ 0x0bde5), &[Destage::Free, Destage::Free, Destage::Ordered]);
        let whole = Rng::new(seed ^ 0x66_0b_de).below(2) == 0;
        spec.whole_flushes = whole && spec.options.destage == Destage::Ordered;
        let extra_rng = &mut Rng::new(seed ^ 0xe87a);
        let extras = Extra::draw(extra_rng);
        // Half of the lives with extras have a mirror.
        spec.mirrored |= !extras.is_empty() && extra_rng.below(2) == 0;
        // The whole cache is replaced several times, unless that takes too many requests.
        let blocks = capacity * pick(rng, &[1, 4, 8]);
        let (requests, control_every) =
            ((blocks * 16 / longest).clamp(50, 1500) / generations, pick(rng, &[0, 100, 10]));
        let trouble = pick(
            rng,
            &[Trouble::None, Trouble::None, Trouble::Errors, Trouble::Errors, Trouble::CacheDies, Trouble::CacheLies],
        );
        if trouble == Trouble::CacheDies {
            spec.cache_limit_ns = pick(&mut Rng::new(seed ^ 0xcac4_e096), &[None, Some(HANGS_AFTER_NS)]);
        }
        Self {
            generations,
            requests,
            clients,
            control_every,
            kills: pick(&mut Rng::new(seed ^ 0x5161), &[false, true]),
            trouble,
            fickle: pick(&mut Rng::new(seed ^ 0xf1c7), &[false, true]),
            faults_every: pick(rng, &[5, 20, 100]),
            breaks_every: pick(&mut Rng::new(seed ^ 0xb4ea), &[0, 0, 0, 5, 20, 100]),
            pause_every: pick(rng, &[0, 40, 15]),
            pause_ns: pick(rng, &[300_000_000, 20_000_000_000, 7_200_000_000_000]),
            extras,
            spec,
        }
    }

    /// Whether this life has an extra.
    #[must_use]
    pub fn has(&self, extra: Extra) -> bool {
        self.extras.contains(&extra)
    }

    /// Whether only one member of a mirrored cache dies before a new one is there.
    #[must_use]
    pub fn one_dies(&self) -> bool {
        let dies = match self.trouble {
            Trouble::CacheDies => !self.has(Extra::BothDie),
            // Half of these lives have a member that dies: that is the point of a mirror.
            Trouble::Errors => self.spec.seed.is_multiple_of(2),
            Trouble::None | Trouble::CacheLies => false,
        };
        self.spec.mirrored && dies
    }

    /// Changes the world as the extras say. This is done at the last moment, so that a [`Change`]
    /// can take extras away.
    pub(super) fn add_extras(&mut self, seed: u64) {
        // A server that dies shows at once what its disk had dropped long before.
        self.fickle &= self.breaks_every == 0;
        if self.has(Extra::Origins) {
            extra::add_origins(&mut Rng::new(seed ^ 0x4191e5), &mut self.spec);
        }
        if self.has(Extra::Modes) {
            extra::mix_modes(&mut Rng::new(seed ^ 0x30de5), &mut self.spec);
        }
        if self.has(Extra::SlowCache) {
            extra::slow_cache(&mut Rng::new(seed ^ 0x510c), &mut self.spec);
        }
        if self.has(Extra::ManyLanes) {
            extra::add_lanes(&mut Rng::new(seed ^ 0x1a9e5), &mut self.spec);
        }
        if self.has(Extra::LargeSegments) {
            extra::enlarge_segments(&mut Rng::new(seed ^ 0x5e6), &mut self.spec);
        }
        if self.has(Extra::Grown) {
            extra::grow_cache(&mut self.spec);
        }
    }

    /// Takes a part of the plan away or makes it less, as `change` says.
    pub fn change(&mut self, change: Change) {
        match change.what {
            What::Generations => self.generations = change.value.max(1),
            What::Requests => self.requests = change.value.max(1),
            What::Clients => self.clients.truncate(change.value.max(1) as usize),
            What::Depth => self.clients.iter_mut().for_each(|it| it.depth = change.value.max(1) as usize),
            What::Controls => self.control_every = change.value,
            What::Specials => self.clients.iter_mut().for_each(|it| it.special_every = change.value),
            What::Pauses => self.pause_every = change.value,
            What::Kills => self.kills = change.value > 0,
            What::Fickle => self.fickle = change.value > 0,
            What::Mirror => self.spec.mirrored = change.value > 0,
            What::RamFront => self.spec.options.ram_front_bytes = change.value,
            What::Apart => self.spec.apart = None,
            What::Mail => {
                self.spec.by_mail = change.value > 0;
                self.spec.apart = self.spec.apart.take().filter(|_| !self.spec.by_mail);
            }
            What::ReadAround => self.spec.options.read_around_blocks = change.value,
            What::Budget => self.spec.options.flash_writes_per_day_bytes = None,
            What::Ordered => self.spec.options.destage = Destage::ALL[change.value.min(1) as usize],
            What::Whole => self.spec.whole_flushes = change.value > 0,
            What::Extras => self.extras.clear(),
            What::Extra(extra) => self.extras.retain(|it| *it != extra),
            What::Breaks => self.breaks_every = change.value,
            What::Faults if change.value == 0 => self.trouble = Trouble::None,
            What::Faults => self.faults_every = change.value,
        }
    }

    /// Changes that make this plan smaller, the largest steps first.
    #[must_use]
    pub fn smaller(&self) -> Vec<Change> {
        let depth = self.clients.iter().map(|it| it.depth).max().unwrap_or(1) as u64;
        let halved = |what, value: u64| (value > 1).then_some(Change { what, value: value / 2 });
        let none = |what, present: bool| present.then_some(Change { what, value: 0 });
        let all = [
            none(What::Faults, self.trouble != Trouble::None),
            none(What::Breaks, self.breaks_every > 0),
            none(What::Extras, self.extras.len() > 1),
            none(What::Controls, self.control_every > 0),
            none(What::Specials, self.clients.iter().any(|it| it.special_every > 0)),
            none(What::Pauses, self.pause_every > 0),
            none(What::Kills, self.kills),
            none(What::Fickle, self.fickle),
            none(What::Mirror, self.spec.mirrored),
            none(What::RamFront, self.spec.options.ram_front_bytes > 0),
            none(What::Apart, self.spec.apart.is_some()),
            none(What::Mail, self.spec.by_mail),
            none(What::ReadAround, self.spec.options.read_around_blocks > 0),
            none(What::Ordered, self.spec.options.destage == Destage::Ordered),
            none(What::Whole, self.spec.whole_flushes),
            none(What::Budget, self.spec.options.flash_writes_per_day_bytes.is_some()),
            halved(What::Generations, self.generations),
            halved(What::Clients, self.clients.len() as u64),
            halved(What::Requests, self.requests),
            (self.requests > 8).then(|| Change { what: What::Requests, value: self.requests * 7 / 8 }),
            halved(What::Depth, depth),
        ];
        let extras = self.extras.iter().map(|extra| Change { what: What::Extra(*extra), value: 0 });
        all.into_iter().flatten().chain(extras).collect()
    }
}

fn world(rng: &mut Rng) -> WorldSpec {
    let lanes = pick(rng, &[1, 1, 1, 2, 2, 4]);
    let segment_blocks = pick(rng, &[16, 16, 16, 32, 64]);
    let segments_per_lane = pick(rng, &[16, 24, 24, 32, 64]);
    let origins = 1 + rng.below(2);
    let capacity = u64::from(lanes * segment_blocks * segments_per_lane);
    let mode = pick(rng, &[Mode::Writeback, Mode::Writeback, Mode::Writeback, Mode::Writethrough, Mode::Writearound]);
    let origin = |rng: &mut Rng| {
        let logical_block_bytes = pick(rng, &[512, 512, 4096]);
        let size = capacity * 4096 * (60 + rng.below(200)) / 100 / origins;
        let unit = u64::from(logical_block_bytes);
        OriginSpec { size_bytes: size.clamp(1 << 20, 12 << 20) / unit * unit, logical_block_bytes, mode }
    };
    let origins: Vec<_> = (0..origins).map(|_| origin(rng)).collect();
    let options = Options {
        policy: pick(rng, &[&policy::ALL[0], &policy::ALL[0], &policy::ALL[1], &policy::ALL[2]]),
        durability: pick(rng, &[Durability::Flush, Durability::Flush, Durability::Always]),
        dirty_limit_blocks: pick(rng, &[None, None, Some(capacity / 8), Some(capacity)]),
        sequential_bypass_bytes: pick(rng, &[0, 64 << 10, 512 << 10]),
        dirty_age_max_ns: pick(rng, &[600_000_000_000, 100_000_000]),
        commit_age_max_ns: pick(rng, &[1_000_000_000, 2_000_000]),
        ..Options::default()
    };
    let seed = rng.next_u64();
    WorldSpec {
        seed,
        batches: seed.is_multiple_of(2),
        lanes,
        segment_blocks,
        segments_per_lane,
        stripe_blocks: pick(rng, &[8, 64, 256]),
        origins,
        cache_ns: pick(rng, &[1_000, 50_000, 2_000_000]),
        origin_ns: pick(rng, &[1_000, 200_000, 5_000_000]),
        options,
        ..WorldSpec::default()
    }
}
