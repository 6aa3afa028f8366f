// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that lend the engine's thread a hand: each takes work that is not begun.
//!
//! Work goes over by value, so that no two threads ever have the same. There is a list of places,
//! one for each lane. Work is put down there, claimed by one atomic exchange, and taken back when
//! it is done. The engine's thread does work that no helper has begun, so it never waits for a
//! helper that sleeps. Helpers look out for a while before they sleep; waking one costs the
//! engine's thread several microseconds.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};

use flashfront_engine::LaneJob;

use super::Arena;

/// How often a helper looks for work before it sleeps: some 30 us, longer than a turn of a busy
/// engine.
const LOOKS: u32 = 4000;
/// Blocks of work for which a sleeping helper is woken, beside the work of the engine's thread.
///
/// To wake it takes 10 us and more, a block 0.3 to 0.6 us (`cargo x bench engine`).
const WAKE_BLOCKS: u64 = 8;
/// How often the engine's thread looks whether a helper is done before it gives the processor away.
/// A helper that was pushed off may need it.
const WAITS: u32 = 2000;

/// States of a place.
const EMPTY: u8 = 0;
const WAITING: u8 = 1;
const CLAIMED: u8 = 2;
const DONE: u8 = 3;

/// A lane's work, with the memory to do it in.
pub(super) struct Work {
    pub(super) job: LaneJob,
    pub(super) arena: Box<Arena>,
    /// The panic by which the work ended.
    panicked: Option<Box<dyn Any + Send>>,
}

impl Work {
    pub(super) fn new(job: LaneJob, arena: Box<Arena>) -> Self {
        Self { job, arena, panicked: None }
    }

    fn run(&mut self) {
        let run = AssertUnwindSafe(|| self.job.run(&mut *self.arena));
        self.panicked = catch_unwind(run).err();
        // The next look may come from another thread.
        self.arena.unfenced.end_all();
    }
}

/// A place where the work of a lane is put down.
#[derive(Default)]
struct WorkSlot {
    state: AtomicU8,
    work: Mutex<Option<Work>>,
}

impl WorkSlot {
    /// No thread ever waits for this lock: the state says whose turn it is.
    fn work(&self) -> MutexGuard<'_, Option<Work>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does the work that lies here, if it is not begun; says whether.
    fn claim(&self) -> bool {
        let claimed = self.state.compare_exchange(WAITING, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if claimed && let Some(work) = &mut *self.work() {
            work.run();
        }
        if claimed {
            self.state.store(DONE, Ordering::Release);
        }
        claimed
    }
}

struct Table {
    places: Vec<WorkSlot>,
    quit: AtomicBool,
}

impl Table {
    fn is_waiting(&self) -> bool {
        self.places.iter().any(|place| place.state.load(Ordering::SeqCst) == WAITING)
    }
}

struct Helper {
    asleep: Arc<AtomicBool>,
    thread: Thread,
    handle: Option<JoinHandle<()>>,
}

/// The helpers.
pub(super) struct Hands {
    table: Arc<Table>,
    helpers: Vec<Helper>,
    /// Helpers do all the work, so that a test knows which thread does it.
    pub(super) leaves_all: bool,
}

impl std::fmt::Debug for Hands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hands({} helpers)", self.helpers.len())
    }
}

impl Hands {
    /// Starts `helpers` helpers for `lanes` lanes.
    pub(super) fn new(lanes: usize, helpers: usize) -> std::io::Result<Self> {
        let places = std::iter::repeat_with(WorkSlot::default).take(lanes).collect();
        let table = Arc::new(Table { places, quit: AtomicBool::new(false) });
        let mut hands = Self { table, helpers: Vec::new(), leaves_all: false };
        for nth in 1..=helpers {
            let (asleep, table) = (Arc::new(AtomicBool::new(false)), Arc::clone(&hands.table));
            let sleeper = Arc::clone(&asleep);
            let name = format!("lanes-{nth}");
            let handle = std::thread::Builder::new().name(name).spawn(move || help(&table, &sleeper))?;
            hands.helpers.push(Helper { asleep, thread: handle.thread().clone(), handle: Some(handle) });
        }
        Ok(hands)
    }

    /// How many helpers.
    pub(super) fn helpers(&self) -> usize {
        self.helpers.len()
    }

    /// Does all of it, with the helpers' help, and gives it back in its order.
    pub(super) fn share(&self, mut all: Vec<Work>) -> Vec<Work> {
        let places = &self.table.places[..all.len()];
        let (mut wanted, mut blocks) = (0, 0);
        for (place, work) in places.iter().zip(all.drain(..)) {
            let of_lane = work.job.blocks();
            (wanted, blocks) = (wanted + usize::from(of_lane > 0), blocks + of_lane);
            *place.work() = Some(work);
            place.state.store(if of_lane > 0 { WAITING } else { DONE }, Ordering::SeqCst);
        }
        let leaves_all = self.leaves_all && !self.helpers.is_empty();
        if leaves_all {
            self.wake(wanted);
        } else {
            if blocks / 2 >= WAKE_BLOCKS {
                self.wake(wanted - 1);
            }
            places.iter().for_each(|place| _ = place.claim());
        }
        let mut panicked = None;
        for place in places {
            let mut looks = 0;
            while place.state.load(Ordering::Acquire) != DONE {
                looks += 1;
                if looks < WAITS { std::hint::spin_loop() } else { std::thread::yield_now() }
            }
            place.state.store(EMPTY, Ordering::Relaxed);
            let mut work = place.work().take().expect("what was put down stays until it is taken back");
            panicked = panicked.or(work.panicked.take());
            all.push(work);
        }
        if let Some(panic) = panicked {
            resume_unwind(panic);
        }
        all
    }

    /// Wakes this many helpers.
    fn wake(&self, wanted: usize) {
        for helper in self.helpers.iter().take(wanted) {
            if helper.asleep.swap(false, Ordering::SeqCst) {
                helper.thread.unpark();
            }
        }
    }
}

impl Drop for Hands {
    fn drop(&mut self) {
        self.table.quit.store(true, Ordering::SeqCst);
        for helper in &mut self.helpers {
            helper.thread.unpark();
            let ended = helper.handle.take().map(JoinHandle::join);
            debug_assert!(ended.is_none_or(|ended| ended.is_ok()), "a helper doesn't panic");
        }
    }
}

/// A helper's life.
fn help(table: &Table, asleep: &AtomicBool) {
    let mut looks = 0;
    while !table.quit.load(Ordering::SeqCst) {
        if table.places.iter().rev().any(WorkSlot::claim) {
            looks = 0;
            continue;
        }
        looks += 1;
        if looks < LOOKS {
            std::hint::spin_loop();
            continue;
        }
        asleep.store(true, Ordering::SeqCst);
        // Work that was put down before is seen here.
        if !table.is_waiting() && !table.quit.load(Ordering::SeqCst) {
            std::thread::park();
        }
        asleep.store(false, Ordering::SeqCst);
        looks = 0;
    }
}
