// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront prefetch`: a part of a volume is brought into the cache before anybody asks for it.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::{ArgGroup, Args};
use flashfront_engine::BLOCK_BYTES;
use flashfront_serve::control::{Client, Command, PREFETCH_BYTES_MAX, Response};
use flashfront_serve::report::{StatusReport, VolumeReport};
use serde::Serialize;

use crate::interrupt::Interrupt;
use crate::status::{Socket, connect};
use crate::{human, progress};

mod file;
mod ranges;
mod recording;

use ranges::{Asked, Ranges};

/// What the cache device was too busy to take is tried again, in so many passes.
const PASSES_MAX: u32 = 16;
/// The pause after the first pass; it grows with each.
const PAUSE: Duration = Duration::from_millis(50);

/// Bring a part of a volume into the cache of a running daemon.
///
/// What is cached already is not read. Clients go first: while their reads miss, the origin is
/// theirs for nine tenths of the time. Only free room is used, unless --replace is given. Ctrl-C
/// stops; what was brought stays.
#[derive(Debug, Args)]
#[command(
    override_usage = "flashfront prefetch [OPTIONS] <WHAT TO BRING> <VOLUME>",
    group = ArgGroup::new("what").required(true),
    after_help = "\
Examples:
  flashfront prefetch data --range 0..20GiB
  flashfront prefetch data --file /srv/images/base.qcow2
  flashfront prefetch data --recording monday.blktrace.gz --replace"
)]
pub(crate) struct Prefetch {
    /// The volume's name.
    #[arg(value_name = "VOLUME")]
    volume: String,
    /// Bytes of the volume, as in "1GiB..3GiB"; without an end up to the volume's.
    #[arg(long, value_name = "A..B", group = "what")]
    range: Vec<Asked>,
    /// The data of a file, which lies on the volume's ext4 or XFS, mounted on this machine.
    #[arg(long, value_name = "PATH", group = "what")]
    file: Option<PathBuf>,
    /// What was read in a trace: that of an earlier `flashfront record`, or another one.
    #[arg(long, value_name = "TRACE", group = "what")]
    recording: Option<PathBuf>,
    /// If no room is free, let blocks leave that were not asked for lately, the oldest first.
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    socket: Socket,
    /// Print the result as one line of JSON.
    #[arg(long)]
    json: bool,
}

/// The end, for scripts.
#[derive(Debug, Serialize)]
struct Outcome {
    /// All that was asked for is in the cache.
    done: bool,
    /// How much that is, in blocks of 4 KiB.
    blocks: u64,
    /// Blocks that were brought; the others were there, or are left.
    blocks_brought: u64,
    /// Blocks that found no room, or a cache device that was too busy.
    blocks_left: u64,
    /// A signal ended it early.
    interrupted: bool,
    seconds: f64,
}

/// What the daemon has brought, or not, since it runs.
#[derive(Clone, Copy)]
struct Counted {
    brought: u64,
    left: u64,
}

impl Counted {
    fn of(report: &StatusReport) -> Self {
        Self { brought: report.counters.warmed_blocks, left: report.counters.unwarmed_blocks }
    }
}

impl Prefetch {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let mut client = connect(&self.socket.path())?;
        let status = client.status()?;
        let volume = self.of(&status)?;
        let ranges = self.ranges(&mut client, volume)?;
        // Without a cache the daemon refuses, and says why.
        if !status.without_cache {
            fits(ranges.bytes(), volume, status.capacity_blocks * BLOCK_BYTES)?;
        }
        let outcome = self.bring(&mut client, &ranges, Counted::of(&status))?;
        if self.json {
            human::read_or_not(human::print_json(&outcome))?;
        } else {
            human::read_or_not(human::tell(&told(&outcome)))?;
        }
        Ok(if outcome.done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn of<'a>(&self, status: &'a StatusReport) -> anyhow::Result<&'a VolumeReport> {
        status.volumes.iter().find(|it| it.name == self.volume).ok_or_else(|| {
            let known: Vec<&str> = status.volumes.iter().map(|it| it.name.as_str()).collect();
            anyhow!("no volume `{}`; the daemon has: {}", self.volume, known.join(", "))
        })
    }

    /// The parts of the volume that are asked for.
    fn ranges(&self, client: &mut Client, volume: &VolumeReport) -> anyhow::Result<Ranges> {
        let size = volume.size_bytes;
        let found = match (&self.file, &self.recording) {
            (Some(path), _) => {
                let placed = file::places(path, size)?;
                self.lies_here(client, path, placed.uuid)?;
                placed.places
            }
            (None, Some(path)) => recording::read_places(path, size)?,
            (None, None) => {
                let inside = |asked: &Asked| asked.within(size).ok_or_else(|| self.outside(*asked, size));
                self.range.iter().map(inside).collect::<Result<Vec<_>, _>>()?
            }
        };
        Ok(Ranges::new(found, size))
    }

    /// Refuses a file whose file system is not the volume's.
    fn lies_here(&self, client: &mut Client, path: &Path, uuid: Option<(u64, [u8; 16])>) -> anyhow::Result<()> {
        let volume = &self.volume;
        let Some((offset, uuid)) = uuid else {
            eprintln!(
                "flashfront: {}: whether it lies on volume {volume}, or on another disk of the same size, can't be seen before Linux 6.9 but by root; going on",
                path.display()
            );
            return Ok(());
        };
        match client.call(&Command::Compare { volume: volume.clone(), offset, bytes: uuid.to_vec() })? {
            Response::OtherBytes => Err(of_file(
                path,
                format_args!(
                    "its file system is not that of volume {volume}, but lies on another disk of the same size; choose a file that lies on the volume"
                ),
            )),
            _ => Ok(()),
        }
    }

    fn outside(&self, asked: Asked, size: u64) -> anyhow::Error {
        anyhow!("--range {asked}: volume {} has {size} bytes, and no bytes there; choose a part of it", self.volume)
    }

    /// Has all of it brought, with a bar. What a pass has left for another reason than want of room
    /// is tried again.
    fn bring(&self, client: &mut Client, ranges: &Ranges, before: Counted) -> anyhow::Result<Outcome> {
        let interrupt = Interrupt::new()?;
        let started = Instant::now();
        let bar = progress::of_bytes("prefetching");
        bar.set_length(ranges.bytes());
        let (mut interrupted, mut last, mut left) = (false, before, 0);
        'passes: for pass in 1..=PASSES_MAX {
            let mut position = 0;
            for Range { start, end } in ranges.parts(PREFETCH_BYTES_MAX) {
                client.call(&Command::Prefetch {
                    volume: self.volume.clone(),
                    offset: start,
                    bytes: end - start,
                    replace: self.replace,
                })?;
                position += end - start;
                bar.set_position(position);
                if interrupt.wait(Duration::ZERO) {
                    interrupted = true;
                    break 'passes;
                }
            }
            let now = Counted::of(&client.status()?);
            left = now.left - last.left;
            let in_vain = now.brought == last.brought;
            last = now;
            if left == 0 || in_vain && !self.replace {
                break;
            }
            if interrupt.wait(PAUSE * pass) {
                interrupted = true;
                break;
            }
        }
        bar.finish_and_clear();
        let now = Counted::of(&client.status()?);
        if interrupted {
            left = now.left - last.left;
        }
        Ok(Outcome {
            done: !interrupted && left == 0,
            blocks: ranges.bytes() / BLOCK_BYTES,
            blocks_brought: now.brought - before.brought,
            blocks_left: left,
            interrupted,
            seconds: started.elapsed().as_secs_f64(),
        })
    }
}

/// Refuses more than the cache holds, or than the volume may have of it.
fn fits(asked: u64, volume: &VolumeReport, capacity: u64) -> anyhow::Result<()> {
    let (name, largest, bytes) = (&volume.name, volume.share_max_bytes, human::bytes(asked));
    if asked > capacity {
        let capacity = human::bytes(capacity);
        return Err(anyhow!("{bytes} are asked for, and the cache has room for {capacity}; ask for less"));
    }
    if largest > 0 && asked > largest {
        let largest = human::bytes(largest);
        return Err(anyhow!(
            "{bytes} are asked for, and volume {name} may have {largest} of the cache; ask for less, or give it more: `flashfront volume set {name} --share-max SIZE`"
        ));
    }
    Ok(())
}

fn told(outcome: &Outcome) -> String {
    let (all, brought) = (human::blocks(outcome.blocks), human::blocks(outcome.blocks_brought));
    let seconds = outcome.seconds;
    if outcome.interrupted {
        return format!("stopped: {brought} brought in {seconds:.1} s, of {all}; run it again to go on\n");
    }
    let left = human::blocks(outcome.blocks_left);
    if outcome.blocks_left > 0 {
        return format!(
            "{brought} brought in {seconds:.1} s, and {left} of {all} not: the cache has no free room for it or the volume has its largest part (--replace lets old blocks leave), its device is too busy, or the flash budget is used up\n"
        );
    }
    format!("all {all} are in the cache: {brought} brought in {seconds:.1} s, the rest was there\n")
}

/// What is wrong with a file whose places or requests are asked for.
fn of_file(path: &Path, why: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("{}: {why}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_told_as_it_is() {
        let all =
            Outcome { done: true, blocks: 512, blocks_brought: 256, blocks_left: 0, interrupted: false, seconds: 1.0 };
        assert_eq!(told(&all), "all 2.00 MiB are in the cache: 1.00 MiB brought in 1.0 s, the rest was there\n");
        let full = told(&Outcome { done: false, blocks_left: 256, ..all });
        assert!(full.contains("and 1.00 MiB of 2.00 MiB not") && full.contains("--replace"), "{full}");
        let stopped = told(&Outcome { done: false, blocks_left: 9, interrupted: true, ..full_of(256) });
        assert!(stopped.starts_with("stopped: ") && stopped.contains("run it again"), "{stopped}");
    }

    fn full_of(blocks: u64) -> Outcome {
        Outcome { done: true, blocks, blocks_brought: blocks, blocks_left: 0, interrupted: false, seconds: 1.0 }
    }
}
