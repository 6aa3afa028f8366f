// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds out whether the machine was quiet during a run.
//!
//! Others may take processor time or use the device under test, and a hypervisor may take time.
//! Kernel threads are no others: they work for the I/O under test. A server on this machine that an
//! NBD target talks to is none, either.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The most of the machine's processor time that others may use.
const OTHERS_MAX: f64 = 0.05;
/// The most of it that a hypervisor may take.
const STEAL_MAX: f64 = 0.01;
/// The most that others may move on the device, as a part of what was measured.
const IO_MAX: f64 = 0.01;
/// Less than this is metadata, and what `udev` reads.
const IO_MIN_BYTES: u64 = 4 << 20;
/// The number of others that are named.
const NAMED: usize = 3;
/// A thread of the kernel, among the flags of /proc/PID/stat (linux/sched.h, `PF_KTHREAD`).
const KERNEL_THREAD: u64 = 0x0020_0000;

/// A moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moment {
    /// The time of all processors.
    total: u64,
    /// The part of it in programs, and in the kernel for them.
    busy: u64,
    steal: u64,
    /// Ours, and of the programs that we ran.
    ours: u64,
    processes: BTreeMap<u64, Process>,
    /// Sectors moved on the device, if there is one.
    sectors: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
struct Process {
    name: String,
    parent: u64,
    /// When it began: a number may be another process's later.
    start: u64,
    ticks: u64,
    kernel: bool,
}

/// The things that are watched.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watched {
    /// The block device under test.
    pub(crate) device: Option<PathBuf>,
    /// Processes that belong to the target.
    pub(crate) part_of_target: Vec<u64>,
}

impl Moment {
    /// Now.
    #[must_use]
    pub(crate) fn now(watched: &Watched) -> Self {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let mut moment = Self::of_stat(&text("/proc/stat"));
        moment.ours = ours(&text("/proc/self/stat"));
        moment.sectors = watched.device.as_deref().and_then(sectors);
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|it| it.parse().ok()) else { continue };
            // It may have ended meanwhile.
            if let Some(process) = process(&text(&format!("/proc/{pid}/stat"))) {
                moment.processes.insert(pid, process);
            }
        }
        moment
    }

    fn of_stat(stat: &str) -> Self {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
        let ticks: Vec<u64> = line.split_whitespace().filter_map(|it| it.parse().ok()).collect();
        let at = |nth: usize| ticks.get(nth).copied().unwrap_or(0);
        // user, nice, system, idle, iowait, irq, softirq, steal; guests are in user.
        Self { total: (0..8).map(at).sum(), busy: at(0) + at(1) + at(2), steal: at(7), ..Self::default() }
    }

    /// Tells what disturbed the time from `before` to this moment, in sentences; `measured_bytes`
    /// were moved on purpose.
    #[must_use]
    pub(crate) fn disturbed_since(
        &self,
        before: &Self,
        watched: &Watched,
        cpus: usize,
        measured_bytes: u64,
    ) -> Vec<String> {
        let mut why = Vec::new();
        let total = self.total.saturating_sub(before.total);
        if total == 0 {
            return why;
        }
        let steal = self.steal.saturating_sub(before.steal) as f64 / total as f64;
        if steal > STEAL_MAX {
            why.push(format!("the hypervisor took {:.1} % of the processors' time (steal)", steal * 100.0));
        }
        let (others, excused) = self.others_since(before, watched);
        let busy = self.busy.saturating_sub(before.busy);
        let used = busy.saturating_sub(self.ours.saturating_sub(before.ours)).saturating_sub(excused);
        let share = used as f64 / total as f64;
        if share > OTHERS_MAX {
            let processors = |ticks: u64| ticks as f64 / total as f64 * cpus as f64;
            let named: Vec<String> = others
                .iter()
                .take(NAMED)
                .filter(|(_, ticks)| *ticks > 0)
                .map(|(name, ticks)| format!("{name} {:.2}", processors(*ticks)))
                .collect();
            let most = if named.is_empty() { String::new() } else { format!(" (most: {})", named.join(", ")) };
            why.push(format!("other programs used {:.2} of {cpus} processors{most}", processors(used)));
        }
        if let (Some(now), Some(then), Some(device)) = (self.sectors, before.sectors, &watched.device) {
            let moved = now.saturating_sub(then) * 512;
            let others = moved.saturating_sub(measured_bytes);
            if others > IO_MIN_BYTES && others as f64 > measured_bytes as f64 * IO_MAX {
                why.push(format!("others moved {} MiB on {}", others >> 20, device.display()));
            }
        }
        why
    }

    /// Returns the others by name, busiest first; and the time of processes that are no others.
    fn others_since(&self, before: &Self, watched: &Watched) -> (Vec<(String, u64)>, u64) {
        let us = u64::from(std::process::id());
        let (mut by_name, mut excused) = (BTreeMap::<&str, u64>::new(), 0);
        for (pid, process) in &self.processes {
            let then = before.processes.get(pid).filter(|it| it.start == process.start).map_or(0, |it| it.ticks);
            let ticks = process.ticks.saturating_sub(then);
            if process.kernel || watched.part_of_target.contains(pid) {
                excused += ticks;
            } else if *pid != us && process.parent != us {
                *by_name.entry(&process.name).or_default() += ticks;
            }
        }
        let mut others: Vec<(String, u64)> =
            by_name.into_iter().map(|(name, ticks)| (name.to_owned(), ticks)).collect();
        others.sort_by_key(|(_, ticks)| std::cmp::Reverse(*ticks));
        (others, excused)
    }
}

/// The fields of /proc/PID/stat behind the name, which may hold anything; the first is the state.
fn fields(stat: &str) -> Option<(&str, Vec<&str>)> {
    let (open, close) = (stat.find('(')?, stat.rfind(')')?);
    Some((stat.get(open + 1..close)?, stat.get(close + 1..)?.split_whitespace().collect()))
}

fn process(stat: &str) -> Option<Process> {
    let (name, fields) = fields(stat)?;
    let at = |nth: usize| fields.get(nth)?.parse::<u64>().ok();
    // proc(5) counts from 1, and the state is its third: ppid 4, flags 9, utime 14, stime 15,
    // starttime 22.
    let kernel = at(6)? & KERNEL_THREAD != 0;
    Some(Process { name: name.to_owned(), parent: at(1)?, start: at(19)?, ticks: at(11)? + at(12)?, kernel })
}

/// Our time and that of our ended children: fields 14 to 17.
fn ours(stat: &str) -> u64 {
    let fields = fields(stat).map(|(_, fields)| fields).unwrap_or_default();
    (11..15).filter_map(|nth| fields.get(nth)?.parse::<u64>().ok()).sum()
}

/// The processes that have a listening Unix socket of this path open, as far as we may see.
pub(crate) fn listeners(socket: &str) -> Vec<u64> {
    let table = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let Some(wanted) = inode(&table, socket).map(|inode| PathBuf::from(format!("socket:[{inode}]"))) else {
        return Vec::new();
    };
    let has_it = |pid: &u64| {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        open.filter_map(|entry| std::fs::read_link(entry.path()).ok()).any(|link| link == wanted)
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(has_it).collect()
}

/// The inode of a listening socket, of /proc/net/unix.
fn inode<'a>(table: &'a str, socket: &str) -> Option<&'a str> {
    /// The socket listens (linux/net.h, `SO_ACCEPTCON`).
    const LISTENS: u64 = 1 << 16;
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (flags, inode, path) = (fields.get(3)?, fields.get(6)?, fields.get(7)?);
        let listens = u64::from_str_radix(flags, 16).ok()? & LISTENS != 0;
        (listens && *path == socket).then_some(*inode)
    })
}

fn sectors(device: &Path) -> Option<u64> {
    let number = std::fs::metadata(device).ok()?.rdev();
    let path = format!("/sys/dev/block/{}:{}/stat", rustix::fs::major(number), rustix::fs::minor(number));
    let text = std::fs::read_to_string(path).ok()?;
    let fields: Vec<u64> = text.split_whitespace().filter_map(|it| it.parse().ok()).collect();
    // Sectors read and written (Documentation/block/stat.rst).
    Some(fields.get(2)? + fields.get(6)?)
}

#[cfg(test)]
mod tests;
