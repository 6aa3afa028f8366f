// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that carry a machine's requests to its store, and bring the answers.
//!
//! A request that was tried before waits first: the longer, the more often it was tried, up to ten
//! seconds, half of it at random.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flashfront_object::{Answer, Effect, Fault, Name, StoredPage, Token};

use crate::meter::Verb;
use crate::place::Place;

/// Requests at a time. A store 50 ms away gives 240 small ones in a second so.
const THREADS: usize = 12;
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// An answer, and what it is the answer to.
#[derive(Debug)]
pub struct Back {
    /// The request.
    pub token: Token,
    /// Its object, for messages.
    pub name: String,
    /// The kind of the request.
    pub kind: Kind,
    /// The store's answer.
    pub answer: Result<Answer, Fault>,
}

/// The kind of a request. A store may refuse one kind and not another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Fetch or list.
    Get,
    /// Store.
    Put,
    /// Delete.
    Delete,
    /// Fetch, without a request: the answer was kept.
    Kept,
}

#[derive(Debug, Default)]
struct Queue {
    /// By when they may begin, and a count.
    jobs: BTreeMap<(Instant, u64), Effect>,
    count: u64,
    stopping: bool,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Called when there is an answer, by the thread that has it.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Carries requests.
#[derive(Debug)]
pub struct Carrier {
    shared: Arc<Shared>,
    answers: Receiver<Back>,
    threads: Vec<JoinHandle<()>>,
}

impl Carrier {
    /// Starts the threads.
    ///
    /// # Errors
    /// If the kernel has no threads.
    pub fn new(place: &Place, wake: Option<Wake>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (give, answers) = channel();
        let mut carrier = Self { shared: Arc::clone(&shared), answers, threads: Vec::new() };
        for _ in 0..THREADS {
            let worker =
                Worker { place: place.clone(), shared: Arc::clone(&shared), give: give.clone(), wake: wake.clone() };
            let thread = std::thread::Builder::new().name("object".to_owned()).spawn(move || worker.work())?;
            carrier.threads.push(thread);
        }
        Ok(carrier)
    }

    /// Takes a request.
    pub fn start(&self, effect: Effect) {
        let attempt = match &effect {
            Effect::Put { attempt, .. }
            | Effect::Get { attempt, .. }
            | Effect::List { attempt, .. }
            | Effect::Delete { attempt, .. } => *attempt,
            Effect::Told { .. } => 0,
        };
        let mut queue = self.shared.queue();
        queue.count += 1;
        let key = (Instant::now() + backoff(attempt), queue.count);
        queue.jobs.insert(key, effect);
        drop(queue);
        self.shared.changed.notify_one();
    }

    /// Ends without waiting for the requests under way. The store may still carry them out.
    pub fn abandon(mut self) {
        self.threads.clear();
    }

    /// An answer, if there is one.
    #[must_use]
    pub fn take(&self) -> Option<Back> {
        self.answers.try_recv().ok()
    }

    /// Waits for an answer.
    #[must_use]
    pub fn wait(&self, limit: Duration) -> Option<Back> {
        self.answers.recv_timeout(limit).ok()
    }
}

impl Drop for Carrier {
    /// Waits for the requests under way; those that have not begun are dropped.
    fn drop(&mut self) {
        self.shared.queue().stopping = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn backoff(attempt: u32) -> Duration {
    if attempt == 0 {
        return Duration::ZERO;
    }
    let most = BACKOFF_MAX.min(BACKOFF_FIRST * 2u32.pow(attempt.min(8) - 1));
    let random = u32::from(crate::this::random_id()[0]);
    most / 2 + most / 512 * random
}

struct Worker {
    place: Place,
    shared: Arc<Shared>,
    give: Sender<Back>,
    wake: Option<Wake>,
}

impl Worker {
    fn work(&self) {
        while let Some(effect) = self.next() {
            let back = self.carry(effect);
            if self.give.send(back).is_err() {
                return;
            }
            if let Some(wake) = &self.wake {
                wake();
            }
        }
    }

    fn next(&self) -> Option<Effect> {
        let mut queue = self.shared.queue();
        loop {
            if queue.stopping {
                return None;
            }
            let now = Instant::now();
            let due = queue.jobs.first_key_value().map(|((due, _), _)| *due);
            match due {
                Some(due) if due <= now => return queue.jobs.pop_first().map(|(_, effect)| effect),
                Some(due) => {
                    let waited = self.shared.changed.wait_timeout(queue, due - now);
                    queue = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                None => queue = self.shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Gets a range of an object. Pages of the map may have been kept.
    fn get(&self, name: &str, range: Option<(u64, u64)>, pages: &[StoredPage]) -> (Kind, Result<Vec<u8>, Fault>) {
        let store = self.place.store();
        let Some((kept, range)) = self.place.pages().zip(range).filter(|_| !pages.is_empty()) else {
            return (Kind::Get, store.get(name, range));
        };
        if let Some(bytes) = kept.find(name, range, pages) {
            return (Kind::Kept, Ok(bytes));
        }
        let answer = store.get(name, Some(range));
        if let Ok(bytes) = &answer {
            kept.keep(name, range.0, pages, bytes);
        }
        (Kind::Get, answer)
    }

    fn carry(&self, effect: Effect) -> Back {
        let store = self.place.store();
        match &effect {
            Effect::Put { attempt: 1.., .. } => self.place.meter().repeats(Verb::Put),
            Effect::Get { attempt: 1.., .. } => self.place.meter().repeats(Verb::Get),
            Effect::List { attempt: 1.., .. } => self.place.meter().repeats(Verb::List),
            Effect::Delete { attempt: 1.., .. } => self.place.meter().repeats(Verb::Delete),
            _ => {}
        }
        match effect {
            Effect::Put { token, name, body, create, .. } => {
                let name = self.place.name(name);
                let answer = store.put(&name, &body, create).map(|()| Answer::Done);
                Back { token, name, kind: Kind::Put, answer }
            }
            Effect::Get { token, key, range, pages, .. } => {
                let name = self.place.key(&key);
                let (kind, answer) = self.get(&name, range, &pages);
                Back { token, name, kind, answer: answer.map(Answer::Bytes) }
            }
            Effect::List { token, .. } => {
                let name = format!("{}/manifest/", self.place.prefix());
                let number = |name: &str| match self.place.parse(name) {
                    Some(Name::Manifest(number)) => Some(number),
                    _ => None,
                };
                let listed = store.list(&name);
                let numbers = listed.map(|all| Answer::Numbers(all.iter().filter_map(|it| number(&it.name)).collect()));
                Back { token, name, kind: Kind::Get, answer: numbers }
            }
            Effect::Delete { token, name, .. } => {
                let name = self.place.name(name);
                let answer = store.delete(&name).map(|()| Answer::Done);
                Back { token, name, kind: Kind::Delete, answer }
            }
            Effect::Told { ticket, .. } => {
                debug_assert!(false, "bug: what is told is not the store's");
                Back { token: ticket, name: String::new(), kind: Kind::Get, answer: Ok(Answer::Done) }
            }
        }
    }
}
