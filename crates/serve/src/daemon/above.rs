// SPDX-License-Identifier: MIT OR Apache-2.0
//! Before a stop takes our files and block devices away, asks the file systems and programs above
//! them to write.
//!
//! The programs `sync` do that, and no thread of ours: their writes go to this daemon. A thread
//! that the kernel does not let go would keep the process alive. So it would keep the very file
//! systems alive that it waits for. The daemon serves meanwhile. `found` says what is above. (ADR
//! 0031)

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use super::stop::StopHandle;

mod found;

pub(super) use found::Roots;
use found::{Found, Holder};

/// How long those above may take. A page cache has some seconds of writes at most, unless its
/// limits were raised.
const ASKING_MAX: Duration = Duration::from_secs(30);

/// Holders above our volumes that are writing.
#[derive(Debug)]
pub(super) struct Asking {
    deadline: Instant,
    /// The answer of each holder; closed when all have answered.
    answers: Receiver<Answer>,
    waiting_for: Vec<Holder>,
    found: Receiver<Found>,
    /// The number of holders that have written all they held.
    done: usize,
}

#[derive(Debug)]
struct Answer {
    holder: Holder,
    /// Why it may still hold something.
    failed: Option<String>,
}

impl Asking {
    /// Begins to ask, if any volume is a file or a block device of this machine.
    pub(super) fn begin(roots: &Roots, stop: &StopHandle) -> Self {
        let (answer, answers) = channel();
        let (tell, found) = channel();
        let asking = Self { deadline: Instant::now() + ASKING_MAX, answers, waiting_for: Vec::new(), found, done: 0 };
        if roots.is_empty() {
            return asking;
        }
        let (roots, stop) = (roots.clone(), stop.clone());
        let ask = move || {
            let found = found::above(&roots);
            let levels = found.levels.clone();
            // A daemon that has ended needs no answer, here and below.
            let _ = tell.send(found);
            stop.wake();
            for level in levels.into_iter().rev() {
                let running: Vec<_> = level.into_iter().map(|holder| (spawn(&holder), holder)).collect();
                for (child, holder) in running {
                    let failed = child.and_then(std::process::Child::wait_with_output);
                    let failed = match failed {
                        Ok(output) if output.status.success() => None,
                        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
                        Err(error) => Some(format!("the program sync: {error}")),
                    };
                    let _ = answer.send(Answer { holder, failed });
                    stop.wake();
                }
            }
            drop(answer);
            stop.wake();
        };
        if let Err(error) = std::thread::Builder::new().name("ask-above".to_owned()).spawn(ask) {
            tracing::warn!("nobody above can be asked to write what it holds: starting a thread: {error}");
        }
        asking
    }

    /// Tells the answers that came meanwhile. Returns true when no holder is left to wait for, or
    /// no time.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        if let Ok(found) = self.found.try_recv() {
            self.waiting_for = found.levels.concat();
            if !self.waiting_for.is_empty() {
                tracing::info!(
                    "stopping: waiting until what is above has written what it holds, {} s at most: {}",
                    ASKING_MAX.as_secs(),
                    names(&self.waiting_for)
                );
            }
            for unseen in &found.unseen {
                tracing::warn!("stopping: {unseen}");
            }
        }
        loop {
            match self.answers.try_recv() {
                Ok(Answer { holder, failed }) => {
                    self.waiting_for.retain(|other| *other != holder);
                    match failed {
                        None => self.done += 1,
                        Some(why) => tracing::warn!(
                            "stopping: {holder} can't be asked to write what it holds ({why}); whether it holds any is not known here"
                        ),
                    }
                }
                Err(TryRecvError::Disconnected) => {
                    if self.done > 0 {
                        tracing::info!("stopping: what was asked has written what it held");
                    }
                    return true;
                }
                Err(TryRecvError::Empty) => break,
            }
        }
        let late = now >= self.deadline;
        if late {
            tracing::warn!(
                "stopping: {} s are over; not waiting any longer for {}; what is not written by now is lost for them",
                ASKING_MAX.as_secs(),
                if self.waiting_for.is_empty() {
                    "a look at what is above".to_owned()
                } else {
                    names(&self.waiting_for)
                }
            );
        }
        late
    }
}

fn names(holders: &[Holder]) -> String {
    holders.iter().map(Holder::to_string).collect::<Vec<_>>().join(", ")
}

/// Starts the program that asks.
fn spawn(holder: &Holder) -> std::io::Result<std::process::Child> {
    let mut sync = Command::new("sync");
    let path: &PathBuf = match holder {
        Holder::FileSystem { reach, .. } => {
            sync.arg("-f");
            reach
        }
        Holder::Device(path) => path,
    };
    sync.arg("--").arg(path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()
}
