// SPDX-License-Identifier: MIT OR Apache-2.0
//! The proofs have this in common: workers on all cores, a line of progress, an end by Ctrl-C.

pub(crate) mod canaries;
pub(crate) mod golden;
pub(crate) mod objects;
pub(crate) mod sweep;
pub(crate) mod sweep_objects;
pub(crate) mod torture;

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The command line, as it is told after a mistake.
pub(crate) const USAGE: &str = "\
usage: flashfront-proof sweep [--objects] [--point POINT | --workload NAME]
       flashfront-proof torture [--seconds N] [--seed S] [--with NAME=NUMBER,...]
       flashfront-proof torture --objects [--seconds N] [--seed S]
       flashfront-proof golden [--seeds N]
       flashfront-proof canaries [--all | --objects]
       flashfront-proof canary NAME torture|sweep ...";

/// How often progress is shown to a terminal, and to a log.
const SHOWN_EVERY: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(15)];
const LOOKED_EVERY: Duration = Duration::from_millis(50);

/// Set by Ctrl-C: the proof ends with what it has.
pub(crate) fn interrupted() -> Result<Arc<AtomicBool>, String> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The second one ends it at once.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .map_err(|error| format!("can't take signals: {error}"))?;
    }
    Ok(flag)
}

/// Runs `work` on every core; shows meanwhile how far it is.
pub(crate) fn on_all_cores<T: Send>(work: impl Fn(u64, u64) -> T + Sync, progress: impl Fn(f64) -> String) -> Vec<T> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let begun = Instant::now();
    let terminal = std::io::stderr().is_terminal();
    let every = SHOWN_EVERY[usize::from(!terminal)];
    let left = AtomicU64::new(cores);
    let (work, left) = (&work, &left);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores)
            .map(|nth| {
                scope.spawn(move || {
                    let result = work(nth, cores);
                    left.fetch_sub(1, Ordering::SeqCst);
                    result
                })
            })
            .collect();
        let mut shown = begun;
        while left.load(Ordering::SeqCst) > 0 && workers.iter().any(|worker| !worker.is_finished()) {
            // pacing: a person reads this.
            std::thread::sleep(LOOKED_EVERY);
            if shown.elapsed() >= every {
                shown = Instant::now();
                let line = progress(begun.elapsed().as_secs_f64());
                // Nobody to tell is no reason to stop.
                let _ = if terminal {
                    write!(std::io::stderr(), "\r\x1b[K{line}")
                } else {
                    writeln!(std::io::stderr(), "{line}")
                };
            }
        }
        if terminal {
            eprint!("\r\x1b[K");
        }
        workers.into_iter().map(|worker| worker.join().expect("a worker catches what it runs")).collect()
    })
}

/// Seconds left, if the rest goes as the part so far.
pub(crate) fn seconds_left(elapsed: f64, done: u64, all: u64) -> String {
    if done == 0 { "?".to_owned() } else { format!("{:.0}", elapsed * (all.max(done) - done) as f64 / done as f64) }
}

/// A failure in one line.
pub(crate) fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(600) {
        Some((at, _)) if std::env::var_os("FLASHFRONT_WHOLE").is_none() => format!("{} ...", &line[..at]),
        _ => line,
    }
}
