// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records a volume of a running daemon, which needs neither root nor the kernel.

use std::path::Path;
use std::sync::atomic::Ordering;

use flashfront_serve::control::Client;
use flashfront_serve::tap::{Tapped, TappedOp};

use crate::error::RecordError;
use crate::event::{DISCARD, Event, FLUSH, FUA, READ, WRITE};
use crate::file::Writer;
use crate::kernel::{Outcome, end_of, summary};
use crate::pace::Pace;
use crate::summary::{Ended, Summary, Way};
use crate::{Order, Watch};

/// Discards may be longer than an event can say: they become several.
const PIECE_BYTES: u64 = 1 << 30;

/// Records the requests of clients to a volume: of the one of that name, or of the only one.
///
/// # Errors
/// [`RecordError`]; no file is left then if nothing was recorded.
pub fn volume(control: &Path, name: Option<&str>, order: &Order, watch: &Watch) -> Result<Summary, RecordError> {
    let mut writer = Writer::create(&order.out, order.bytes_max, false)?;
    let asked = Client::connect(control).and_then(|client| client.record(name.map(str::to_owned)));
    let mut recorder = match asked {
        Ok(recorder) => recorder,
        Err(error) => {
            writer.discard();
            return Err(error.into());
        }
    };
    writer.begin(0, recorder.began_ns());
    watch.began.store(true, Ordering::Relaxed);
    let pace = Pace::start(order.limit);
    let (mut ended, mut lost) = (None, 0);
    let recorded = loop {
        if ended.is_none() {
            ended = end_of(&pace, watch, &writer);
            if ended.is_some() {
                recorder.stop();
            }
        }
        match recorder.next() {
            Ok(Some(batch)) => {
                lost = batch.lost;
                if let Err(error) = batch.requests.iter().try_for_each(|it| put(it, &mut writer)) {
                    break Err(error);
                }
            }
            Ok(None) => break Ok(ended.unwrap_or(Ended::DaemonEnded)),
            Err(error) => break Err(error.into()),
        }
        if let Err(error) = writer.tick() {
            break Err(error);
        }
        watch.tell(&writer, lost);
    };
    let end = writer.end();
    watch.tell(&writer, lost);
    let ended = recorded?;
    end?;
    Ok(summary(&writer, order, &pace, Outcome { ended, lost, way: Way::Daemon }))
}

fn put(tapped: &Tapped, writer: &mut Writer) -> Result<(), RecordError> {
    let categories = match tapped.op {
        TappedOp::Read => READ,
        TappedOp::Write => WRITE,
        TappedOp::Discard => WRITE | DISCARD,
        TappedOp::Flush => WRITE | FLUSH,
    } | if tapped.fua { FUA } else { 0 };
    let (mut sector, mut left) = (tapped.lba, tapped.sectors * 512);
    loop {
        let bytes = left.min(PIECE_BYTES);
        writer.put(&Event { time_ns: tapped.time_ns, sector, bytes: bytes as u32, categories, pid: 0 })?;
        (sector, left) = (sector + bytes / 512, left - bytes);
        if left == 0 {
            return Ok(());
        }
    }
}
