// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work on devices by plain system calls, which sleep as long as a device does not answer.
//!
//! A thread does it, and is left behind if the device does not answer in time. It is for starts,
//! stops and other rare work; the pump's I/O has [`crate::wrap::Patience`]. The calls of
//! [`super::DeviceFile`] say which device they ask ([`asking`]), so that the one that hangs can be
//! named.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// How often is looked which device is asked.
const LOOK: Duration = Duration::from_millis(50);

/// Devices that are asked at the same time.
const HELPERS_MAX: usize = 8;

/// A device did not answer in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silent {
    /// The device.
    pub path: PathBuf,
    /// The time that it had.
    pub limit: Duration,
}

impl From<Silent> for io::Error {
    fn from(silent: Silent) -> Self {
        let limit = silent.limit;
        io::Error::new(io::ErrorKind::TimedOut, format!("the device did not answer for {limit:?}"))
    }
}

/// The devices that are asked, each by a thread of its own, and since when.
#[derive(Debug, Default)]
struct Asked(Mutex<Vec<(ThreadId, PathBuf, Instant)>>);

impl Asked {
    fn now(&self) -> MutexGuard<'_, Vec<(ThreadId, PathBuf, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

thread_local! {
    static ASKED: RefCell<Option<Arc<Asked>>> = const { RefCell::new(None) };
}

/// Asks a device something by a system call that may sleep.
pub fn asking<T>(path: &Path, ask: impl FnOnce() -> T) -> T {
    let Some(asked) = ASKED.with_borrow(Clone::clone) else { return ask() };
    let thread = std::thread::current().id();
    let end = || asked.now().retain(|it| it.0 != thread);
    end();
    asked.now().push((thread, path.to_owned(), Instant::now()));
    let answer = ask();
    end();
    answer
}

/// Does this for each of `items`, in several threads. [`watched`] looks after them as after the
/// caller. Returns what came of each, in the order of the items.
///
/// # Panics
/// If the work does.
pub fn each<T: Sync, R: Send>(items: &[T], work: impl Fn(usize, &T) -> R + Sync) -> Vec<R> {
    let (asked, next) = (ASKED.with_borrow(Clone::clone), AtomicUsize::new(0));
    let take = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return done };
            done.push((at, work(at, item)));
        }
    };
    let mut all = std::thread::scope(|scope| {
        let help = || {
            ASKED.set(asked.clone());
            take()
        };
        let helpers: Vec<_> = (1..items.len().min(HELPERS_MAX)).map(|_| scope.spawn(help)).collect();
        let mut all = take();
        for helper in helpers {
            all.extend(helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        all
    });
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, done)| done).collect()
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
        let silent = |(_, path, since): &(ThreadId, PathBuf, Instant)| {
            let limit = limit(path).filter(|limit| since.elapsed() >= *limit)?;
            Some(Silent { path: path.clone(), limit })
        };
        if let Some(silent) = asked.now().iter().find_map(silent) {
            return Err(silent);
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
    fn each_of_several_is_asked_and_a_silent_one_is_named() {
        assert_eq!(each(&[1, 2, 3], |at, it| at * 10 + it), [1, 12, 23]);
        let (answer, silent) = channel::<()>();
        let silent = Mutex::new(silent);
        let limit = |path: &Path| (path == Path::new("/2")).then_some(Duration::from_millis(1));
        let work = move || {
            each(&["/0", "/1", "/2", "/3"], |at, path| {
                asking(Path::new(path), || (at == 2).then(|| silent.lock().unwrap().recv()).is_some())
            })
        };
        assert_eq!(watched(limit, work).unwrap_err().path, Path::new("/2"));
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
