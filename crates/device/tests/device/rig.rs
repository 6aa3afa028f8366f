// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device with memory and a clock: submits I/O and waits for it, in real or virtual time.

use std::path::Path;
use std::time::{Duration, Instant};

use flashfront_device::real::{Access, Prefer, Reactor};
use flashfront_device::{Arena, Device, DeviceIo, Done};
use flashfront_engine::{DeviceError, Memory, Op, Span, Time, Token};

/// Both backends: all tests of real devices run on each.
pub(crate) const BACKENDS: [Prefer; 2] = [Prefer::Uring, Prefer::Threads];

/// A device under test.
pub(crate) struct Rig {
    pub(crate) device: Box<dyn Device>,
    pub(crate) arena: Arena,
    /// Real devices: what to sleep in.
    pub(crate) reactor: Option<Reactor>,
    start: Instant,
    now: Time,
    tokens: u64,
}

impl Rig {
    pub(crate) fn new(device: impl Device + 'static, reactor: Option<Reactor>) -> Self {
        let arena = Arena::new(64 << 20);
        Self { device: Box::new(device), arena, reactor, start: Instant::now(), now: Time(0), tokens: 0 }
    }

    /// A real device, alone on its reactor.
    pub(crate) fn real(path: &Path, prefer: Prefer) -> Self {
        let reactor = Reactor::new(prefer).unwrap();
        let device = reactor.open(path, Access::Exclusive).unwrap();
        Self::new(device, Some(reactor))
    }

    pub(crate) fn block(&self) -> u64 {
        u64::from(self.device.geometry().logical_block_bytes)
    }

    pub(crate) fn submit(&mut self, op: Op, offset: u64, len: u64, span: Option<Span>) -> Token {
        self.tokens += 1;
        let token = Token(self.tokens);
        self.device.submit(self.now, DeviceIo { token, op, offset, len, span }, &mut self.arena);
        token
    }

    /// Kicks, sleeps until there is something, and returns it.
    pub(crate) fn wait(&mut self) -> Vec<Done> {
        let mut done = Vec::new();
        self.device.kick();
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            self.device.poll(self.now, &mut self.arena, &mut done);
            if !done.is_empty() {
                return done;
            }
            assert!(Instant::now() < deadline, "an I/O never ended");
            let event = self.device.next_event();
            if let Some(reactor) = &self.reactor {
                let now = Time(self.start.elapsed().as_nanos() as u64);
                let sleep = event.map_or(Duration::from_secs(5), |event| Duration::from_nanos(event.since_ns(now)));
                reactor.wait(None, Some(sleep)).unwrap();
                self.now = Time(self.start.elapsed().as_nanos() as u64);
            } else {
                self.now = self.now.max(event.expect("an I/O is in flight and nothing will happen"));
            }
        }
    }

    /// Carries out an I/O, start to end.
    pub(crate) fn run(&mut self, op: Op, offset: u64, len: u64, span: Option<Span>) -> Result<(), DeviceError> {
        let token = self.submit(op, offset, len, span);
        let done = self.wait();
        assert_eq!(done.len(), 1);
        assert_eq!(done[0].token, token);
        done[0].result
    }

    pub(crate) fn flush(&mut self) -> Result<(), DeviceError> {
        self.run(Op::Flush, 0, 0, None)
    }

    /// Writes bytes, from memory that starts `shift` bytes into its buffer.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8], shift: u32) -> Result<(), DeviceError> {
        let buf = self.arena.alloc(data.len() as u32 + shift);
        let span = Span::new(buf, shift, data.len() as u32);
        self.arena.bytes_mut(span).copy_from_slice(data);
        let result = self.run(Op::Write, offset, data.len() as u64, Some(span));
        self.arena.free(buf);
        result
    }

    pub(crate) fn read(&mut self, offset: u64, len: u32, shift: u32) -> Result<Vec<u8>, DeviceError> {
        let buf = self.arena.alloc(len + shift);
        let span = Span::new(buf, shift, len);
        self.arena.bytes_mut(span).fill(0xee);
        let result = self.run(Op::Read, offset, u64::from(len), Some(span));
        let bytes = self.arena.bytes(span).to_vec();
        self.arena.free(buf);
        result.map(|()| bytes)
    }
}

/// Bytes that say where they are and of which write.
pub(crate) fn pattern(offset: u64, len: u64, version: u64) -> Vec<u8> {
    let words = (0..len / 8).map(|word| (offset + word * 8).wrapping_mul(0x9e37_79b9) ^ version << 40);
    words.flat_map(u64::to_le_bytes).collect()
}

/// A folder on a file system that can do direct I/O (/tmp may be a tmpfs).
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A file of this size in the folder.
pub(crate) fn file(folder: &Path, name: &str, size_bytes: u64) -> std::path::PathBuf {
    let path = folder.join(name);
    std::fs::File::create(&path).unwrap().set_len(size_bytes).unwrap();
    path
}

/// Runs a program; its standard output, or why there is none.
pub(crate) fn run(program: &str, args: &[&str]) -> Result<String, String> {
    let output =
        std::process::Command::new(program).args(args).output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        Err(format!("{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}
