// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records a block device by the kernel: through blktrace's interface, or else through tracefs.
//!
//! Whatever is set up in the kernel is taken down again by `Drop`, also after an error. What a
//! killed recording has left is known by its lock, and removed by the next one (`lock`).

mod ioctl;
mod lock;
mod mounts;
mod relay;
mod target;
mod tracefs;

use std::path::Path;
use std::sync::atomic::Ordering;

use crate::error::RecordError;
use crate::file::Writer;
use crate::held::Held;
use crate::pace::{Pace, monotonic_ns};
use crate::summary::{Ended, Summary, Way};
use crate::{Order, Watch};
use lock::Lock;
use relay::Relay;
use target::Target;
use tracefs::Tracefs;

/// The looks from one count of lost requests to the next one: a second.
const LOST_EVERY: u64 = 10;

/// A source of the kernel's events.
trait Source {
    /// Returns the kernel's way.
    fn way(&self) -> Way;

    /// Lets the kernel note events.
    fn start(&mut self) -> Result<(), RecordError>;

    /// Reads all that is there. Names of processes go to the writer at once.
    fn read(&mut self, target: &Target, held: &mut Held, writer: &mut Writer) -> Result<(), RecordError>;

    /// Lets the kernel note nothing more; what was noted can still be read.
    fn stop(&mut self) -> Result<(), RecordError>;

    /// Events that were lost so far.
    fn lost(&mut self) -> u64;
}

/// Records a block device: a disk, a partition, or whatever else has requests of its own.
///
/// # Errors
/// [`RecordError`]; no file is left then if nothing was recorded.
pub fn device(device: &Path, order: &Order, watch: &Watch) -> Result<Summary, RecordError> {
    let target = Target::of(device)?;
    let lock = Lock::take(&target)?;
    let mut writer = Writer::create(&order.out, order.bytes_max, order.processes)?;
    let mut source = match open(&target, &lock) {
        Ok(source) => source,
        Err(error) => {
            writer.discard();
            return Err(error);
        }
    };
    writer.begin(target.device, monotonic_ns());
    let recorded = record(&target, &mut *source, order, watch, &mut writer);
    drop(source);
    lock.done();
    let (ended, pace, lost, way) = match recorded {
        Ok(recorded) => recorded,
        Err(error) => {
            // Requests that were recorded before an error are kept.
            if writer.counts().requests() == 0 {
                writer.discard();
            } else {
                writer.end()?;
            }
            return Err(error);
        }
    };
    writer.end()?;
    Ok(summary(&writer, order, &pace, Finish { ended, lost, way }))
}

/// How a recording went, beside what is in its file.
pub(crate) struct Finish {
    pub(crate) ended: Ended,
    pub(crate) lost: u64,
    pub(crate) way: Way,
}

pub(crate) fn summary(writer: &Writer, order: &Order, pace: &Pace, finish: Finish) -> Summary {
    let counts = writer.counts();
    Summary {
        requests: counts.requests(),
        reads: counts.reads,
        writes: counts.writes,
        discards: counts.discards,
        flushes: counts.flushes,
        bytes_read: counts.bytes_read,
        bytes_written: counts.bytes_written,
        seconds: pace.elapsed().as_secs_f64(),
        lost: finish.lost,
        processor_seconds: pace.processor().as_secs_f64(),
        file: order.out.clone(),
        file_bytes: writer.bytes(),
        ended: finish.ended,
        way: finish.way,
    }
}

/// The first way that the kernel has.
fn open(target: &Target, lock: &Lock) -> Result<Box<dyn Source>, RecordError> {
    let blktrace = match Relay::open(target, lock) {
        Ok(relay) => {
            if lock.is_leftover {
                tracefs::remove_leftover(target);
            }
            return Ok(Box::new(relay));
        }
        Err(why) => why,
    };
    match Tracefs::open(target) {
        Ok(tracefs) => Ok(Box::new(tracefs)),
        Err(tracefs) => Err(RecordError::NoWay { path: target.path.clone(), blktrace, tracefs }),
    }
}

fn record(
    target: &Target,
    source: &mut dyn Source,
    order: &Order,
    watch: &Watch,
    writer: &mut Writer,
) -> Result<(Ended, Pace, u64, Way), RecordError> {
    let (mut held, mut lost) = (Held::default(), 0);
    source.start()?;
    watch.began.store(true, Ordering::Relaxed);
    let mut pace = Pace::start(order.limit);
    let mut look = 0_u64;
    loop {
        pace.look();
        let ended = end_of(&pace, watch, writer);
        if ended.is_some() {
            source.stop()?;
        }
        let until = if ended.is_some() { u64::MAX } else { monotonic_ns() };
        source.read(target, &mut held, writer)?;
        for event in held.take_until(until) {
            writer.put(&event)?;
        }
        writer.tick()?;
        // A file for each processor is read for that.
        if look.is_multiple_of(LOST_EVERY) || ended.is_some() {
            lost = source.lost();
        }
        watch.tell(writer, lost);
        if let Some(ended) = ended {
            return Ok((ended, pace, lost, source.way()));
        }
        look += 1;
        pace.wait();
    }
}

/// Whether a recording is to end, and why.
pub(crate) fn end_of(pace: &Pace, watch: &Watch, writer: &Writer) -> Option<Ended> {
    match () {
        () if writer.is_full() => Some(Ended::MaxSize),
        () if watch.stop.load(Ordering::Relaxed) => Some(Ended::Stopped),
        () if pace.is_over() => Some(Ended::Time),
        () => None,
    }
}

impl Watch {
    /// Tells watchers of the progress.
    pub(crate) fn tell(&self, writer: &Writer, lost: u64) {
        self.requests.store(writer.counts().requests(), Ordering::Relaxed);
        self.file_bytes.store(writer.bytes(), Ordering::Relaxed);
        self.lost.store(lost, Ordering::Relaxed);
    }
}
