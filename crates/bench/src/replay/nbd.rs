// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client of NBD for replays: one connection, many requests in flight. Data that is read is
//! dropped: a trace says nothing of it.
//!
//! The client speaks fixed newstyle with simple replies, over a unix socket or TCP. It has no TLS.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::blocks::Blocks;

const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const OPTION_GO: u32 = 7;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const HAS_FLUSH: u16 = 1 << 2;
const HAS_TRIM: u16 = 1 << 5;

/// A stream of either kind.
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn input(&self) -> io::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Self::Unix(it) => Box::new(it.try_clone()?),
            Self::Tcp(it) => Box::new(it.try_clone()?),
        })
    }

    fn output(&self) -> io::Result<Box<dyn Write + Send>> {
        Ok(match self {
            Self::Unix(it) => Box::new(it.try_clone()?),
            Self::Tcp(it) => Box::new(it.try_clone()?),
        })
    }

    fn shut_down(&self) {
        // A server that is gone already is no trouble: nothing is in flight any more.
        let _ = match self {
            Self::Unix(it) => it.shutdown(std::net::Shutdown::Both),
            Self::Tcp(it) => it.shutdown(std::net::Shutdown::Both),
        };
    }
}

/// A request that waits for its reply.
struct Waiting {
    /// Bytes that come behind the reply, if it is no error.
    len: u64,
    answer: SyncSender<io::Result<()>>,
}

#[derive(Default)]
struct InFlight {
    next: u64,
    by_cookie: HashMap<u64, Waiting>,
    /// The connection is over: nothing new is asked.
    is_over: bool,
}

pub(super) struct Nbd {
    out: Mutex<Box<dyn Write + Send>>,
    in_flight: Arc<Mutex<InFlight>>,
    stream: Stream,
    reader: Option<thread::JoinHandle<()>>,
    size: u64,
    flags: u16,
}

impl Nbd {
    pub(super) fn connect(uri: &str) -> io::Result<Self> {
        let (stream, export) = dial(uri)?;
        let (mut input, mut out) = (stream.input()?, stream.output()?);
        let (size, flags) = shake_hands(&mut *input, &mut *out, &export)?;
        let in_flight = Arc::new(Mutex::new(InFlight::default()));
        let shared = Arc::clone(&in_flight);
        let reader = thread::spawn(move || {
            let why = hear(&mut *input, &shared);
            let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
            shared.is_over = true;
            for waiting in std::mem::take(&mut shared.by_cookie).into_values() {
                // The waiting thread may be gone.
                let _ = waiting.answer.send(Err(io::Error::new(why.kind(), why.to_string())));
            }
        });
        Ok(Self { out: Mutex::new(out), in_flight, stream, reader: Some(reader), size, flags })
    }

    fn ask(&self, command: u16, at: u64, len: u64, data: &[u8]) -> io::Result<()> {
        let (answer, answered) = sync_channel(1);
        let len_32 = u32::try_from(len).map_err(|_| io::Error::other("a request of more than 4 GiB"))?;
        let cookie = {
            let mut in_flight = self.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
            if in_flight.is_over {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            in_flight.next += 1;
            let cookie = in_flight.next;
            let behind = if command == READ { len } else { 0 };
            in_flight.by_cookie.insert(cookie, Waiting { len: behind, answer });
            cookie
        };
        let mut head = Vec::with_capacity(28);
        head.extend(REQUEST_MAGIC.to_be_bytes());
        head.extend([0; 2]);
        head.extend(command.to_be_bytes());
        head.extend(cookie.to_be_bytes());
        head.extend(at.to_be_bytes());
        head.extend(len_32.to_be_bytes());
        {
            let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
            out.write_all(&head)?;
            out.write_all(data)?;
        }
        answered.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
    }
}

impl Drop for Nbd {
    fn drop(&mut self) {
        self.stream.shut_down();
        if let Some(reader) = self.reader.take() {
            // Its error was told to the requests.
            let _ = reader.join();
        }
    }
}

impl Blocks for Nbd {
    fn size_bytes(&self) -> u64 {
        self.size
    }

    fn unit_bytes(&self) -> u64 {
        512
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.ask(READ, at, buffer.len() as u64, &[])
    }

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.ask(WRITE, at, data.len() as u64, data)
    }

    fn discard(&self, at: u64, len: u64) -> io::Result<bool> {
        if self.flags & HAS_TRIM == 0 {
            return Ok(false);
        }
        self.ask(TRIM, at, len, &[]).map(|()| true)
    }

    fn flush(&self) -> io::Result<()> {
        if self.flags & HAS_FLUSH == 0 { Ok(()) } else { self.ask(FLUSH, 0, 0, &[]) }
    }
}

/// Hears replies until the connection ends; why it did.
fn hear(input: &mut dyn Read, in_flight: &Mutex<InFlight>) -> io::Error {
    let mut dropped = vec![0; 256 << 10];
    loop {
        let mut reply = [0; 16];
        if let Err(error) = input.read_exact(&mut reply) {
            return error;
        }
        let magic = u32_at(&reply, 0);
        let (error, cookie) = (u32_at(&reply, 4), u64_at(&reply, 8));
        let waiting = in_flight.lock().unwrap_or_else(PoisonError::into_inner).by_cookie.remove(&cookie);
        let Some(waiting) = waiting.filter(|_| magic == REPLY_MAGIC) else {
            return io::Error::other("the server's reply is none to any request");
        };
        let mut left = if error == 0 { waiting.len } else { 0 };
        while left > 0 {
            let part = left.min(dropped.len() as u64) as usize;
            if let Err(error) = input.read_exact(&mut dropped[..part]) {
                let _ = waiting.answer.send(Err(io::Error::new(error.kind(), error.to_string())));
                return error;
            }
            left -= part as u64;
        }
        let answer = if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error.cast_signed())) };
        let _ = waiting.answer.send(answer);
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// `nbd://HOST[:PORT]/EXPORT`, or `nbd+unix:///EXPORT?socket=PATH`: a connection, and the export.
fn dial(uri: &str) -> io::Result<(Stream, String)> {
    let wrong = || {
        io::Error::other("no URI of NBD without TLS; expected nbd://HOST:PORT/EXPORT or nbd+unix:///EXPORT?socket=PATH")
    };
    let (scheme, rest) = uri.split_once("://").ok_or_else(wrong)?;
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (host, export) = place.split_once('/').unwrap_or((place, ""));
    let stream = match scheme {
        "nbd+unix" => {
            let socket = query.split('&').find_map(|it| it.strip_prefix("socket=")).ok_or_else(wrong)?;
            Stream::Unix(UnixStream::connect(decoded(socket).ok_or_else(wrong)?)?)
        }
        "nbd" => {
            let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            let address = if has_port { host.to_owned() } else { format!("{host}:10809") };
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            Stream::Tcp(stream)
        }
        _ => return Err(wrong()),
    };
    Ok((stream, decoded(export).ok_or_else(wrong)?))
}

/// A text of a URI without its percent signs.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        if *first == b'%' {
            let hex = std::str::from_utf8(behind.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(hex, 16).ok()?);
            rest = &behind[2..];
        } else {
            bytes.push(*first);
            rest = behind;
        }
    }
    String::from_utf8(bytes).ok()
}

/// The export's size and flags.
fn shake_hands(input: &mut dyn Read, out: &mut dyn Write, export: &str) -> io::Result<(u64, u16)> {
    let mut greeting = [0; 18];
    input.read_exact(&mut greeting)?;
    if &greeting[..16] != b"NBDMAGICIHAVEOPT" {
        return Err(io::Error::other("the server does not speak NBD (newstyle)"));
    }
    // Fixed newstyle, and no zeroes behind the export's size.
    out.write_all(&3_u32.to_be_bytes())?;
    let name = export.as_bytes();
    let mut go = b"IHAVEOPT".to_vec();
    go.extend(OPTION_GO.to_be_bytes());
    go.extend((name.len() as u32 + 6).to_be_bytes());
    go.extend((name.len() as u32).to_be_bytes());
    go.extend(name);
    go.extend([0, 0]);
    out.write_all(&go)?;
    let mut found = None;
    loop {
        let mut head = [0; 20];
        input.read_exact(&mut head)?;
        let (kind, len) = (u32_at(&head, 12), u32_at(&head, 16));
        if u64_at(&head, 0) != OPTION_REPLY_MAGIC || len > 64 << 10 {
            return Err(io::Error::other("the server's answer to the handshake is none of NBD"));
        }
        let mut data = vec![0; len as usize];
        input.read_exact(&mut data)?;
        match kind {
            REPLY_ACK => return found.ok_or_else(|| io::Error::other("the server tells no size of the export")),
            REPLY_INFO if data.len() >= 12 && data[..2] == [0, 0] => {
                found = Some((u64_at(&data, 2), u16::from_be_bytes([data[10], data[11]])));
            }
            REPLY_INFO => (),
            _ => {
                let why = String::from_utf8_lossy(&data).into_owned();
                return Err(io::Error::other(format!("the server refuses the export `{export}`: {why}")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_read() {
        assert_eq!(decoded("/run/a%20b.sock").as_deref(), Some("/run/a b.sock"));
        assert_eq!(decoded("%2"), None);
        for wrong in ["nbds://host/x", "nbd+unix:///x", "/dev/sda", "nbd+unix:///x?socket=%zz"] {
            assert!(dial(wrong).is_err_and(|error| error.to_string().contains("no URI of NBD")), "{wrong}");
        }
    }
}
