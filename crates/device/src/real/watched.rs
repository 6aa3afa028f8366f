// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work on devices by plain system calls, which sleep as long as a device does not answer.
//!
//! A thread does it, and is left behind if the device does not answer in time. It is for starts,
//! stops and other rare work; the pump's I/O has [`crate::wrap::Patience`]. The calls of
//! [`super::DeviceFile`] say which device they ask ([`asking`]), so that the one that hangs can be
//! named.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often is looked which device is asked.
const LOOK: Duration = Duration::from_millis(50);

/// A device did not answer in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silent {
    /// The device.
    pub path: PathBuf,
    /// The time that it had.
    pub limit: Duration,
}

/// The device that is asked, and since when.
#[derive(Debug, Default)]
struct Asked(Mutex<Option<(PathBuf, Instant)>>);

impl Asked {
    fn now(&self) -> MutexGuard<'_, Option<(PathBuf, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

thread_local! {
    static ASKED: RefCell<Option<Arc<Asked>>> = const { RefCell::new(None) };
}

/// Asks a device something by a system call that may sleep.
pub fn asking<T>(path: &Path, ask: impl FnOnce() -> T) -> T {
    let Some(asked) = ASKED.with_borrow(Clone::clone) else { return ask() };
    *asked.now() = Some((path.to_owned(), Instant::now()));
    let answer = ask();
    *asked.now() = None;
    answer
}

/// Does this in a thread of its own, and leaves that behind if a device does not answer in its
/// time.
///
/// `limit` has the time of each device; `None`: for ever.
///
/// # Errors
/// [`Silent`]. The thread is there still, with all that it was given, and goes on when the device
/// answers.
///
/// # Panics
/// If the work does, or the kernel has no thread to give.
pub fn watched<T: Send + 'static>(
    limit: impl Fn(&Path) -> Option<Duration>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Silent> {
    let asked = Arc::new(Asked::default());
    let (own, (sender, receiver)) = (Arc::clone(&asked), channel());
    let work = move || {
        ASKED.set(Some(own));
        // The caller may be gone.
        let _ = sender.send(work());
    };
    let thread = std::thread::Builder::new().name("device".to_owned()).spawn(work).expect("a thread");
    loop {
        match receiver.recv_timeout(LOOK) {
            Ok(answer) => {
                // The caller goes on when nothing is open any more that the thread had.
                let _ = thread.join();
                return Ok(answer);
            }
            Err(RecvTimeoutError::Disconnected) => {
                let panic = thread.join().err().unwrap_or_else(|| Box::new("bug: work without an answer"));
                std::panic::resume_unwind(panic);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some((path, since)) = &*asked.now()
            && let Some(limit) = limit(path)
            && since.elapsed() >= limit
        {
            return Err(Silent { path: path.clone(), limit });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_does_not_answer_is_named_and_left_behind() {
        let (answer, silent) = channel::<()>();
        let limit = |path: &Path| (path == Path::new("/b")).then_some(Duration::from_millis(1));
        let work = move || {
            asking(Path::new("/a"), || ());
            asking(Path::new("/b"), move || silent.recv())
        };
        let told = watched(limit, work).unwrap_err();
        assert_eq!(told, Silent { path: "/b".into(), limit: Duration::from_millis(1) });
        // It goes on when the device answers.
        answer.send(()).unwrap();
    }

    #[test]
    fn what_is_answered_is_handed_on() {
        assert_eq!(watched(|_| Some(Duration::ZERO), || 7), Ok(7), "nobody was asked");
        let asked = watched(|_| None, || asking(Path::new("/a"), || asking(Path::new("/b"), || 8)));
        assert_eq!(asked, Ok(8));
        let panicked = std::panic::catch_unwind(|| watched(|_| None, || panic!("as said")));
        assert_eq!(panicked.unwrap_err().downcast_ref::<&str>(), Some(&"as said"));
    }
}
