// SPDX-License-Identifier: MIT OR Apache-2.0
//! A proxy between a daemon and an object store: it answers 429 and 500, delays, cuts connections
//! and loses answers, as it is told.
//!
//! The proxy remembers what the store has acknowledged. So a server with its objects in RAM can be
//! killed: whoever starts it again gives it what it had acknowledged, and nothing else.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Random;

/// A head of a request is far shorter.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// What becomes of requests. The numbers are in percent of all requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weather {
    /// Answered by 429 or 503, and not carried out.
    pub(crate) busy: u64,
    /// Answered by 500; every second one is carried out.
    pub(crate) broken: u64,
    /// Cut before the answer, or within the request; every second one is carried out.
    pub(crate) cut: u64,
    /// Each request is late by up to so much.
    pub(crate) late: Duration,
    /// Nothing reaches the store: connections are closed at once.
    pub(crate) is_away: bool,
    /// The store is one that knows no conditions.
    pub(crate) strips_conditions: bool,
}

/// What came of requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) puts: u64,
    pub(crate) gets: u64,
    /// Bytes of payload, both ways.
    pub(crate) bytes: u64,
    /// Requests that were answered by 429, 500 or 503, or cut.
    pub(crate) spoilt: u64,
    /// GETs that are held.
    pub(crate) held: u64,
}

#[derive(Debug)]
struct State {
    weather: Weather,
    /// The next GET of an object is held.
    holds_next: bool,
    random: Random,
    seen: Seen,
    upstream: u16,
    /// Acknowledged objects: the requests that made them, by their targets.
    kept: BTreeMap<String, Vec<u8>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Held by the PUT that is with the server. Moto looks whether an object is there, and makes it
    /// later: of two PUTs at once both may succeed, which no real store does.
    puts: Mutex<()>,
    /// Told when a GET that is held may go on.
    released: Condvar,
    is_ending: AtomicBool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread of the proxy has panicked")
    }
}

/// A proxy that runs.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) port: u16,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Stands before the server at this port.
    pub(crate) fn before(upstream: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has ports");
        let port = listener.local_addr().expect("it is bound").port();
        let (weather, random, seen) = (Weather::default(), Random::new(7), Seen::default());
        let state = State { weather, holds_next: false, random, seen, upstream, kept: BTreeMap::new() };
        let (puts, released, is_ending) = (Mutex::default(), Condvar::new(), AtomicBool::new(false));
        let shared = Arc::new(Shared { state: Mutex::new(state), puts, released, is_ending });
        let ours = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if ours.is_ending.load(Ordering::Relaxed) {
                    return;
                }
                let shared = Arc::clone(&ours);
                // A client that goes away is no fault of the proxy.
                std::thread::spawn(move || carry(&shared, client).ok());
            }
        });
        Self { port, shared, thread: Some(thread) }
    }

    pub(crate) fn set(&self, weather: Weather) {
        self.shared.state().weather = weather;
    }

    /// Holds the next GET of an object until it is released. No other request waits for it.
    pub(crate) fn hold_next_get(&self) {
        self.shared.state().holds_next = true;
    }

    /// Lets a GET that is held go on.
    pub(crate) fn release(&self) {
        let mut state = self.shared.state();
        (state.holds_next, state.seen.held) = (false, 0);
        self.shared.released.notify_all();
    }

    pub(crate) fn seen(&self) -> Seen {
        self.shared.state().seen
    }

    /// The server listens at another port now, and has forgotten everything for ever.
    pub(crate) fn forget(&self, upstream: u16) {
        let mut state = self.shared.state();
        state.upstream = upstream;
        state.kept.clear();
    }

    /// The server listens at another port now, and has forgotten everything: gives it what had been
    /// acknowledged.
    pub(crate) fn restore(&self, upstream: u16) {
        let mut state = self.shared.state();
        state.upstream = upstream;
        for (target, request) in &state.kept {
            let answer = ask(upstream, request).expect("the server has just been started");
            assert!((200..300).contains(&code(&answer)), "{target}: {}", String::from_utf8_lossy(&answer));
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::Relaxed);
        self.release();
        TcpStream::connect(("127.0.0.1", self.port)).ok();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// What becomes of one request.
enum Fate {
    Passes,
    Answered { by: u16, carried_out: bool },
    Cut { carried_out: bool },
}

/// Carries one request of a connection. The client is told that the connection ends then.
fn carry(shared: &Shared, mut client: TcpStream) -> std::io::Result<()> {
    if shared.state().weather.is_away {
        shared.state().seen.spoilt += 1;
        return client.shutdown(Shutdown::Both);
    }
    let Some((head, body)) = request(&mut client)? else { return Ok(()) };
    let mut words = head.split(' ');
    let (verb, target) = (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned());
    let (fate, late, upstream, strips) = {
        let mut state = shared.state();
        let at = state.random.below(100);
        let once_more = state.random.below(2) == 0;
        let Weather { busy, broken, cut, late, strips_conditions, is_away: _ } = state.weather;
        let fate = match at {
            _ if at < busy => Fate::Answered { by: if once_more { 429 } else { 503 }, carried_out: false },
            _ if at < busy + broken => Fate::Answered { by: 500, carried_out: once_more },
            _ if at < busy + broken + cut => Fate::Cut { carried_out: once_more },
            _ => Fate::Passes,
        };
        let late = late.mul_f64(state.random.below(100) as f64 / 100.0);
        state.seen.puts += u64::from(verb == "PUT");
        state.seen.gets += u64::from(verb == "GET");
        state.seen.bytes += body.len() as u64;
        state.seen.spoilt += u64::from(!matches!(fate, Fate::Passes));
        (fate, late, state.upstream, strips_conditions)
    };
    hold(shared, &verb, &target);
    std::thread::sleep(late); // pacing: the way to the store
    let whole = rewritten(&head, &body, strips);
    let carry_out = || -> std::io::Result<Vec<u8>> {
        let _alone = (verb == "PUT").then(|| shared.puts.lock().expect("no thread of the proxy has panicked"));
        let answer = ask(upstream, &whole)?;
        let mut state = shared.state();
        if (200..300).contains(&code(&answer)) {
            match verb.as_str() {
                // What makes an object has no parameters.
                "PUT" if !target.contains('?') => _ = state.kept.insert(target.clone(), whole.clone()),
                "DELETE" => _ = state.kept.remove(&target),
                _ => {}
            }
        }
        state.seen.bytes += answer.len() as u64;
        Ok(answer)
    };
    match fate {
        Fate::Passes => client.write_all(&carry_out()?)?,
        Fate::Answered { by, carried_out } => {
            if carried_out {
                carry_out()?;
            }
            let answer = format!("HTTP/1.1 {by} Weather\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            client.write_all(answer.as_bytes())?;
        }
        Fate::Cut { carried_out } => {
            if carried_out {
                let answer = carry_out()?;
                client.write_all(&answer[..answer.len() / 2])?;
            }
        }
    }
    client.shutdown(Shutdown::Both)
}

/// Waits if the request is the GET that is to be held.
fn hold(shared: &Shared, verb: &str, target: &str) {
    let mut state = shared.state();
    // A list has parameters.
    if !state.holds_next || verb != "GET" || target.contains('?') {
        return;
    }
    (state.holds_next, state.seen.held) = (false, 1);
    let held = shared.released.wait_while(state, |it| it.seen.held > 0);
    drop(held.expect("no thread of the proxy has panicked"));
}

/// Reads a request: its head without the empty line, and its body.
fn request(client: &mut TcpStream) -> std::io::Result<Option<(String, Vec<u8>)>> {
    let (mut bytes, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|it| it == b"\r\n\r\n") {
            break at;
        }
        let len = client.read(&mut piece)?;
        if len == 0 || bytes.len() > HEAD_BYTES_MAX {
            return Ok(None);
        }
        bytes.extend_from_slice(&piece[..len]);
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let wanted: usize = header(&head, "content-length").and_then(|it| it.parse().ok()).unwrap_or(0);
    let mut body = bytes.split_off(end + 4);
    let had = body.len().min(wanted);
    body.resize(wanted, 0);
    client.read_exact(&mut body[had..])?;
    Ok(Some((head, body)))
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// The request as the server gets it: it must close the connection when it has answered.
fn rewritten(head: &str, body: &[u8], strips_conditions: bool) -> Vec<u8> {
    let goes = |line: &&str| {
        let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
        name != "connection" && !(strips_conditions && name == "if-none-match")
    };
    let mut whole = head.lines().filter(goes).collect::<Vec<_>>().join("\r\n");
    whole.push_str("\r\nConnection: close\r\n\r\n");
    [whole.as_bytes(), body].concat()
}

/// Asks a server, and takes its answer to the end of the connection.
fn ask(port: u16, request: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut server = TcpStream::connect(("127.0.0.1", port))?;
    server.write_all(request)?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer)?;
    match answer.is_empty() {
        true => Err(std::io::ErrorKind::UnexpectedEof.into()),
        false => Ok(answer),
    }
}

/// The code of an answer.
fn code(answer: &[u8]) -> u16 {
    let word = answer.get(9..12).and_then(|it| std::str::from_utf8(it).ok());
    word.and_then(|it| it.parse().ok()).unwrap_or(0)
}
