// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront record`: the requests of a block device or of a running daemon's volume, as a trace.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use flashfront_record::{BYTES_MIN, Ended, Order, RecordError, Summary, Watch, Way, device, processor, volume};
use flashfront_serve::config::{Age, Size};
use indicatif::{ProgressBar, ProgressStyle};

use crate::status::Socket;
use crate::usage::misused;
use crate::{human, interrupt};

/// Between two pictures of how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Record the requests of a block device, or of a volume of a running daemon.
///
/// The file holds places, sizes and times, never data. It is what blktrace writes, packed with
/// gzip: `flashfront advise FILE` reads it, and so does `zcat FILE | blkparse -i -`. A device takes
/// root; a volume takes neither root nor help of the kernel. Ctrl-C ends a recording early, and the
/// file is whole.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  flashfront record /dev/sdb --for 1h --out sdb.trace
  flashfront record --volume data --for 1h
  flashfront advise sdb.trace")]
pub(crate) struct Record {
    /// The disk, partition or logical volume; not with --volume or --control.
    #[arg(value_name = "DEVICE", required_unless_present_any = ["volume", "control"], conflicts_with_all = ["volume", "control"])]
    device: Option<PathBuf>,
    /// A volume of a running daemon; its name may be left out if there is only one.
    #[arg(long, value_name = "NAME", num_args = 0..=1)]
    volume: Option<Option<String>>,
    #[command(flatten)]
    socket: Socket,
    /// How long to record, as in "30s" or "1h" [default: until Ctrl-C].
    #[arg(long = "for", value_name = "DURATION")]
    limit: Option<Age>,
    /// The new file [default: a name made of the device's or volume's and the time, in this
    /// folder].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// End before the file is larger; at least 1 MiB. A million requests take some 10 MiB.
    #[arg(long, value_name = "SIZE", default_value = "1 GiB")]
    max_size: Size,
    /// Also record the numbers and names of the processes that ask; a daemon does not know them.
    #[arg(long, conflicts_with_all = ["volume", "control"])]
    processes: bool,
    /// Print what was recorded as one line of JSON.
    #[arg(long)]
    json: bool,
}

impl Record {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if self.max_size.0 < BYTES_MIN {
            misused!("--max-size: {}; the least is {}", human::bytes(self.max_size.0), human::bytes(BYTES_MIN));
        }
        let order = Order {
            out: self.out.clone().unwrap_or_else(|| name_of(&self.what(), SystemTime::now())),
            limit: self.limit.map(|limit| limit.0),
            bytes_max: self.max_size.0,
            processes: self.processes,
        };
        let summary = watched(&self.what(), &order, |watch| match &self.device {
            Some(path) => device(path, &order, watch),
            None => volume(&self.socket.path(), self.volume.iter().flatten().next().map(String::as_str), &order, watch),
        })?;
        if self.json {
            human::print_json(&summary)?;
        } else {
            human::tell(&told(&summary))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Names what is recorded, in a word.
    fn what(&self) -> String {
        let device = self.device.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        device.or_else(|| self.volume.clone().flatten()).unwrap_or_else(|| "volume".to_owned())
    }
}

/// Returns the usual name of the file: `sdb-2026-11-28T09-30-00Z.blktrace.gz`.
pub(crate) fn name_of(what: &str, now: SystemTime) -> PathBuf {
    let time = humantime::format_rfc3339_seconds(now).to_string().replace(':', "-");
    PathBuf::from(format!("{}-{time}.blktrace.gz", what.replace('/', "-")))
}

/// Records while a line on stderr shows how far it is. Ctrl-C and SIGTERM end it well.
pub(crate) fn watched(
    what: &str,
    order: &Order,
    record: impl FnOnce(&Watch) -> Result<Summary, RecordError>,
) -> anyhow::Result<Summary> {
    let watch = Arc::new(Watch::default());
    let heard = Arc::clone(&watch);
    interrupt::on_signal(move || heard.stop.store(true, Ordering::Relaxed))?;
    let (done, ended) = channel::<()>();
    let summary = thread::scope(|scope| {
        scope.spawn(|| show(what, order, &watch, ended));
        let summary = record(&watch);
        drop(done);
        summary
    });
    Ok(summary?)
}

#[expect(clippy::needless_pass_by_value, reason = "a receiver can't be shared with a thread")]
fn show(what: &str, order: &Order, watch: &Watch, ended: Receiver<()>) {
    if !tracing::enabled!(tracing::Level::WARN) {
        return;
    }
    let style = ProgressStyle::with_template("{spinner} {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
    let line = ProgressBar::new_spinner().with_style(style);
    let (mut began, before) = (None, processor());
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(LOOK_EVERY) {
        if !watch.began.load(Ordering::Relaxed) {
            continue;
        }
        let began = *began.get_or_insert_with(|| {
            // Scripts wait for this line, too.
            line.suspend(|| eprintln!("recording {what} into {}", order.out.display()));
            Instant::now()
        });
        let elapsed = began.elapsed();
        let share = processor().saturating_sub(before).as_secs_f64() / elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        line.set_message(progress(what, order, watch, elapsed, share));
        line.tick();
    }
    line.finish_and_clear();
}

fn progress(what: &str, order: &Order, watch: &Watch, elapsed: Duration, share: f64) -> String {
    let load = |number: &std::sync::atomic::AtomicU64| number.load(Ordering::Relaxed);
    let left = order.limit.map_or_else(
        || "Ctrl-C ends it".to_owned(),
        |limit| format!("{} left", human::span(limit.saturating_sub(elapsed).as_secs())),
    );
    let lost = match load(&watch.lost) {
        0 => String::new(),
        lost => format!("; {} lost", human::count(lost)),
    };
    format!(
        "recording {what}: {}, {left}; {}{lost}; {} of {}; {} of a processor",
        human::span(elapsed.as_secs()),
        human::counted(load(&watch.requests), "request"),
        human::bytes(load(&watch.file_bytes)),
        human::bytes(order.bytes_max),
        human::percent(Some(share)),
    )
}

/// The end, for people.
fn told(summary: &Summary) -> String {
    let Summary { reads, writes, discards, flushes, .. } = *summary;
    let (file, size) = (human::quoted(&summary.file), human::bytes(summary.file_bytes));
    let seconds = summary.seconds as u64;
    let mut text = format!("recorded    {} in {}", human::counted(summary.requests, "request"), human::span(seconds));
    text += match summary.ended {
        Ended::Time => "\n",
        Ended::Stopped => ", and stopped then as asked\n",
        Ended::MaxSize => "; the file has its largest size (--max-size), so the recording ended there\n",
        Ended::DaemonEnded => "; the daemon has ended, and so has the recording\n",
    };
    text += &format!(
        "            {} of {}, {} of {}, {}, {}\n",
        human::counted(reads, "read"),
        human::bytes(summary.bytes_read),
        human::counted(writes, "write"),
        human::bytes(summary.bytes_written),
        human::counted(discards, "discard"),
        if flushes == 1 { "1 flush".to_owned() } else { format!("{} flushes", human::count(flushes)) },
    );
    if summary.lost > 0 {
        text += &format!("lost        {}\n", lost(summary));
    }
    let share = summary.processor_seconds / summary.seconds.max(f64::MIN_POSITIVE);
    text += &format!("cost        {size}, {} of a processor\n", human::percent(Some(share)));
    text += &format!("file        {file}\nnext        flashfront advise {file}\n");
    text
}

fn lost(summary: &Summary) -> String {
    let lost = human::counted(summary.lost, "event");
    let at_most = if summary.way == Way::Blktrace { "at most as many" } else { "as many" };
    format!("{lost}: more came at once than this machine could take; {at_most} requests are missing")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> Summary {
        Summary {
            requests: 1_003,
            reads: 1_000,
            writes: 1,
            discards: 1,
            flushes: 1,
            bytes_read: 4_096_000,
            bytes_written: 512,
            seconds: 61.5,
            lost: 0,
            processor_seconds: 0.615,
            file: "my disk.gz".into(),
            file_bytes: 8192,
            ended: Ended::Time,
            way: Way::Blktrace,
        }
    }

    #[test]
    fn the_end_is_told() {
        let text = told(&summary());
        for words in [
            "1,003 requests in 1 min 1 s\n",
            "1,000 reads of 3.91 MiB",
            "1 write of 512 B",
            "1 flush\n",
            "8.00 KiB, 1.0 % of a processor",
            "flashfront advise 'my disk.gz'",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(!text.contains("lost"), "{text}");
        let full = told(&Summary { ended: Ended::MaxSize, lost: 5, ..summary() });
        assert!(full.contains("--max-size") && full.contains("5 events") && full.contains("at most"), "{full}");
        let stopped = told(&Summary { ended: Ended::Stopped, lost: 5, way: Way::Daemon, ..summary() });
        assert!(stopped.contains("stopped") && !stopped.contains("at most"), "{stopped}");
    }

    #[test]
    fn progress_says_what_it_costs() {
        let order =
            Order { out: "x".into(), limit: Some(Duration::from_secs(3600)), bytes_max: 1 << 30, processes: false };
        let watch = Watch::default();
        watch.requests.store(12_345, Ordering::Relaxed);
        watch.file_bytes.store(1 << 20, Ordering::Relaxed);
        let line = progress("sdb", &order, &watch, Duration::from_secs(123), 0.012);
        assert_eq!(
            line,
            "recording sdb: 2 min 3 s, 57 min 57 s left; 12,345 requests; 1.00 MiB of 1.00 GiB; 1.2 % of a processor"
        );
        watch.lost.store(7, Ordering::Relaxed);
        let line = progress("sdb", &Order { limit: None, ..order }, &watch, Duration::from_secs(1), 0.0);
        assert!(line.contains("Ctrl-C ends it; 12,345 requests; 7 lost;"), "{line}");
    }

    #[test]
    fn the_usual_name_says_what_and_when() {
        let name = name_of("vg/lv", SystemTime::UNIX_EPOCH);
        assert_eq!(name, Path::new("vg-lv-1970-01-01T00-00-00Z.blktrace.gz"));
    }
}
