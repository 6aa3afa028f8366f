// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limit of the socket: NBD spoken by one thread with nothing behind it.
//!
//! Reads are answered with the same bytes, and written bytes are thrown away where they arrived.
//! `cargo x bench nbd` measures the daemon beside it. It has the daemon's shape: one thread, one
//! poller, as many requests and replies with one system call as there are. But it trusts its
//! clients, and looks at their requests only as far as it must.
//!
//! It is a bound for many requests of 4 KiB in flight. With one request it sleeps where the daemon
//! looks out for the next (ADR 0016). The payload of large reads it fills each time.
//!
//! echo SOCKET: serves 8 GiB there until it is killed.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use std::os::fd::AsRawFd;

const SIZE_BYTES: u64 = 8 << 30;
/// Bytes that the daemon reads with one system call.
const INPUT_BYTES: usize = 128 << 10;
const LISTENER: Token = Token(0);

const REQUEST_BYTES: usize = 28;
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;

fn main() -> io::Result<()> {
    let path = std::env::args().nth(1).ok_or_else(|| io::Error::other("usage: echo SOCKET"))?;
    let listener = UnixListener::bind(path)?;
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(64);
    poll.registry().register(&mut SourceFd(&listener.as_raw_fd()), LISTENER, Interest::READABLE)?;
    listener.set_nonblocking(true)?;
    let mut clients: HashMap<Token, Client> = HashMap::new();
    let mut next = LISTENER.0;
    loop {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => other?,
        }
        for event in &events {
            if event.token() == LISTENER {
                while let Ok((mut socket, _)) = listener.accept() {
                    socket.set_nonblocking(false)?;
                    if shake_hands(&mut socket).is_ok_and(|goes_on| goes_on) {
                        socket.set_nonblocking(true)?;
                        next += 1;
                        let both = Interest::READABLE | Interest::WRITABLE;
                        poll.registry().register(&mut SourceFd(&socket.as_raw_fd()), Token(next), both)?;
                        clients.insert(Token(next), Client::new(socket));
                    }
                }
            } else if clients.get_mut(&event.token()).is_some_and(|client| client.serve().is_err()) {
                // Closing it takes it out of the poller.
                clients.remove(&event.token());
            }
        }
    }
}

/// Fixed newstyle; whether the client goes on to requests.
fn shake_hands(socket: &mut UnixStream) -> io::Result<bool> {
    socket.write_all(b"NBDMAGICIHAVEOPT\0\x03")?;
    socket.read_exact(&mut [0; 4])?;
    loop {
        let mut option = [0; 16];
        socket.read_exact(&mut option)?;
        let (number, len) = (be_u32(&option[8..12]), be_u32(&option[12..16]));
        socket.read_exact(&mut vec![0; len as usize])?;
        let mut answer = |kind: u32, data: &[u8]| {
            let mut bytes = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
            [number, kind, data.len() as u32].iter().for_each(|field| bytes.extend(field.to_be_bytes()));
            bytes.extend(data);
            socket.write_all(&bytes)
        };
        match number {
            // NBD_OPT_ABORT
            2 => return answer(1, &[]).map(|()| false),
            // NBD_OPT_INFO, NBD_OPT_GO; NBD_INFO_EXPORT with flags for FLUSH, FUA and several
            // connections.
            6 | 7 => {
                let flags: u16 = 1 | 1 << 2 | 1 << 3 | 1 << 8;
                answer(3, &[&[0; 2][..], &SIZE_BYTES.to_be_bytes(), &flags.to_be_bytes()].concat())?;
                answer(1, &[])?;
                if number == 7 {
                    return Ok(true);
                }
            }
            _ => answer(0x8000_0001, &[])?,
        }
    }
}

struct Client {
    socket: UnixStream,
    input: Vec<u8>,
    /// The number of bytes that are filled.
    filled: usize,
    output: Vec<u8>,
    /// The number of bytes that are sent.
    sent: usize,
}

impl Client {
    fn new(socket: UnixStream) -> Self {
        Self { socket, input: vec![0; INPUT_BYTES], filled: 0, output: Vec::new(), sent: 0 }
    }

    /// Receives, and answers, as far as the socket goes.
    fn serve(&mut self) -> io::Result<()> {
        loop {
            let room = self.input.len() - self.filled;
            match self.socket.read(&mut self.input[self.filled..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => {
                    self.filled += bytes;
                    self.answer()?;
                    if bytes < room {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        while self.sent < self.output.len() {
            match self.socket.write(&self.output[self.sent..]) {
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.sent = 0;
        Ok(())
    }

    fn answer(&mut self) -> io::Result<()> {
        let mut at = 0;
        while let Some(request) = self.input[at..self.filled].first_chunk::<REQUEST_BYTES>() {
            let command = u16::from_be_bytes([request[6], request[7]]);
            let len = be_u32(&request[24..28]) as usize;
            let bytes = REQUEST_BYTES + if command == WRITE { len } else { 0 };
            if command == DISCONNECT {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            if self.filled - at < bytes {
                self.input.resize(self.input.len().max(bytes), 0);
                break;
            }
            self.output.extend(0x6744_6698_u32.to_be_bytes());
            self.output.extend([0; 4]);
            self.output.extend(&request[8..16]);
            if command == READ {
                self.output.resize(self.output.len() + len, 7);
            }
            at += bytes;
        }
        self.input.copy_within(at..self.filled, 0);
        self.filled -= at;
        Ok(())
    }
}

fn be_u32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}
