// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records a volume of a running daemon, which needs neither root nor the kernel.

use std::mem;
use std::path::Path;
use std::sync::atomic::Ordering;

use flashfront_serve::control::Client;
use flashfront_serve::tap::{Tapped, TappedOp};

use crate::error::RecordError;
use crate::event::{DISCARD, Event, FLUSH, FUA, READ, WRITE};
use crate::file::Writer;
use crate::kernel::{Finish, end_of, summary};
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
    let (mut ended, mut lost, mut joined) = (None, 0, Joined::default());
    let recorded = loop {
        if ended.is_none() {
            ended = end_of(&pace, watch, &writer);
            if ended.is_some() {
                recorder.stop();
            }
        }
        match recorder.next_batch() {
            Ok(Some(batch)) => {
                lost = batch.lost;
                if let Err(error) = joined.take(batch.requests).iter().try_for_each(|it| put(it, &mut writer)) {
                    break Err(error);
                }
            }
            Ok(None) => {
                let rest = joined.take(Vec::new());
                let put = rest.iter().try_for_each(|it| put(it, &mut writer));
                break put.map(|()| ended.unwrap_or(Ended::DaemonEnded));
            }
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
    Ok(summary(&writer, order, &pace, Finish { ended, lost, way: Way::Daemon }))
}

/// Requests of the last frame that the next frame may go on with: a front-end hands a long request
/// on in parts, as it comes.
#[derive(Default)]
struct Joined {
    last: Vec<Tapped>,
}

impl Joined {
    /// How far back the beginning of a request is looked for: more than clients have under way.
    const LOOK_BACK: usize = 4096;

    /// Takes the requests of a frame; gives back those that are complete.
    fn take(&mut self, next: Vec<Tapped>) -> Vec<Tapped> {
        let mut all = mem::take(&mut self.last);
        let done = all.len();
        for tapped in next {
            let begins = |it: &&mut Tapped| it.op == tapped.op && it.lba + it.sectors == tapped.lba;
            let look_back = if tapped.continues { Self::LOOK_BACK } else { 0 };
            match all.iter_mut().rev().take(look_back).find(begins) {
                Some(begun) => begun.sectors += tapped.sectors,
                None => all.push(tapped),
            }
        }
        self.last = all.split_off(done);
        all
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn part(lba: u64, sectors: u64, continues: bool) -> Tapped {
        Tapped { time_ns: 0, lba, sectors, op: TappedOp::Write, fua: false, continues }
    }

    #[test]
    fn parts_of_a_request_are_one_also_over_two_frames() {
        let mut joined = Joined::default();
        assert_eq!(joined.take(vec![part(0, 128, false), part(1000, 8, false), part(128, 64, true)]), []);
        let done = joined.take(vec![part(192, 64, true), part(256, 8, false)]);
        assert_eq!(done, [part(0, 256, false), part(1000, 8, false)]);
        // A request that begins where another ends, and a part whose beginning was not seen.
        assert_eq!(joined.take(vec![part(264, 8, false), part(5000, 8, true)]), [part(256, 8, false)]);
        assert_eq!(joined.take(Vec::new()), [part(264, 8, false), part(5000, 8, true)]);
    }
}
