// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is left of a daemon whose place was taken: the process that its starter knows.
//!
//! A shell, a container or a script knows the first process only. So that process stays, passes
//! signals on, and ends as the last program does. One front does for all later upgrades: programs
//! in between end, and the kernel gives their children to the front.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

use super::reload_handle::ReloadHandle;
use super::stop::StopHandle;
use crate::upgrade::{Channel, News};

/// Passes signals on to the program that serves, from any thread.
#[derive(Clone, Debug, Default)]
pub struct FrontHandle(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The program that serves; 0: this process does.
    serves: AtomicI32,
    /// The last program that was asked to stop. A second signal would end it at once.
    asked: AtomicI32,
}

impl FrontHandle {
    /// Passes SIGHUP on; false if this process serves itself.
    #[must_use]
    pub fn hang_up(&self) -> bool {
        self.pass(Signal::HUP)
    }

    fn pass(&self, signal: Signal) -> bool {
        let Some(pid) = Pid::from_raw(self.0.serves.load(Ordering::SeqCst)) else { return false };
        if let Err(errno) = kill_process(pid, signal) {
            tracing::warn!("the program that serves (pid {}) gets no signal: {errno}", pid.as_raw_nonzero());
        }
        true
    }

    /// Asks the program that serves to stop, once.
    fn stop(&self) {
        let pid = self.0.serves.load(Ordering::SeqCst);
        if self.0.asked.swap(pid, Ordering::SeqCst) != pid {
            self.pass(Signal::TERM);
        }
    }

    fn set(&self, pid: i32) {
        self.0.serves.store(pid, Ordering::SeqCst);
    }
}

/// A process in front of the program that took its place.
#[derive(Debug)]
pub struct Front {
    pid: i32,
    channel: Channel,
}

/// A front is known by the program that it is in front of.
impl PartialEq for Front {
    fn eq(&self, other: &Self) -> bool {
        self.pid == other.pid
    }
}

impl Eq for Front {}

impl Front {
    pub(super) fn of(pid: u32, channel: Channel) -> Self {
        Self { pid: i32::try_from(pid).unwrap_or(0), channel }
    }

    /// Tells the front of an earlier upgrade which program serves now. True: it knows, and this
    /// process may end.
    pub(crate) fn tell(&self, earlier: &mut Channel) -> bool {
        earlier.say(&News::Succeeded { pid: self.pid }).is_ok()
    }

    /// Stays until the program that serves has ended, and returns the exit code of that program.
    /// Passes `stop` on, and a `reload` that came too late for this process to take it.
    #[must_use]
    pub fn stay(mut self, stop: &StopHandle, reload: &ReloadHandle, handle: &FrontHandle) -> u8 {
        if let Err(errno) = set_child_subreaper(Some(getpid())) {
            tracing::warn!("after another upgrade this process would not know the program that serves: {errno}");
        }
        handle.set(self.pid);
        if reload.take().is_some() {
            handle.pass(Signal::HUP);
        }
        let (asked, to) = (stop.clone(), handle.clone());
        let passes = move || {
            asked.wait_until_asked();
            to.stop();
            while !asked.wait_until_at_once(std::time::Duration::from_secs(3600)) {}
            to.pass(Signal::TERM);
        };
        if let Err(error) = std::thread::Builder::new().name("front".to_owned()).spawn(passes) {
            tracing::warn!("signals are not passed on: starting a thread: {error}");
        }
        loop {
            match wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == self.pid => {
                    if !self.follows(handle) {
                        return status.exit_status().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
                    }
                    if stop.is_asked() {
                        // The signal may have met a program that was handing over.
                        handle.stop();
                    }
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return 1,
            }
        }
    }

    /// The program has ended. True: another has taken its place.
    fn follows(&mut self, handle: &FrontHandle) -> bool {
        let mut follows = false;
        while let Ok(news) = self.channel.hear_at_once::<News>() {
            if let News::Succeeded { pid } = news {
                self.pid = pid;
                handle.set(pid);
                follows = true;
            }
        }
        follows
    }
}
