// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unpacks gzip, xz and zstd, which are known by their first bytes. Members and frames that follow
//! one another are read as one.
//!
//! Streaming: what is unpacked is never held as a whole, so a small file that unpacks to terabytes
//! takes time, not RAM. The windows that the formats let a file ask for are limited to
//! [`WINDOW_BYTES_MAX`], what `zstd --ultra -22` and twice what `xz -9` uses.

use std::io::{self, BufRead, BufReader, Cursor, ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use flate2::bufread::GzDecoder;
use lzma_rust2::{Action, Status, XzStream};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const XZ: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Frames that a reader of zstd has to skip; the lowest 4 bits are free.
const ZSTD_SKIPPED: u32 = 0x184d_2a50;

const WINDOW_BYTES_MAX: u64 = 128 << 20;
const INPUT_BYTES: usize = 128 << 10;

/// A trace, unpacked.
pub(super) struct Unpacked {
    source: Box<dyn Read + Send>,
    packed: bool,
    input: Arc<Input>,
}

/// What is known of the packed side.
#[derive(Default)]
struct Input {
    bytes: AtomicU64,
    failed: AtomicBool,
}

/// Reading on is impossible.
pub(super) enum UnpackError {
    /// The file can't be read.
    Io(io::Error),
    /// The file is compressed, and can't be unpacked.
    Damaged(String),
}

impl Unpacked {
    pub(super) fn new(raw: impl Read + Send + 'static) -> io::Result<Self> {
        let input = Arc::<Input>::default();
        let mut raw = Tap { raw, input: Arc::clone(&input) };
        let mut first = Vec::with_capacity(XZ.len());
        (&mut raw).take(XZ.len() as u64).read_to_end(&mut first)?;
        let packing = Packing::of(&first);
        let packed = packing != Packing::None;
        let whole = BufReader::with_capacity(INPUT_BYTES, Cursor::new(first).chain(raw));
        let memory_kib = (WINDOW_BYTES_MAX >> 10) as u32 + 1024;
        let source: Box<dyn Read + Send> = match packing {
            // The reader has a buffer of its own, and asks for much at once.
            Packing::None => Box::new(whole.into_inner()),
            Packing::Gzip => Box::new(Gzip { member: Some(GzDecoder::new(whole)) }),
            Packing::Xz => {
                Box::new(Xz { source: whole, stream: XzStream::new_mem_limit(true, memory_kib), failed: None })
            }
            Packing::Zstd => Box::new(Zstd::new(whole)),
        };
        Ok(Self { source, packed, input })
    }

    /// Bytes that were taken of the file, packed as it is.
    pub(super) fn input_bytes(&self) -> u64 {
        self.input.bytes.load(Ordering::Relaxed)
    }

    /// As [`Read::read`], but knows whose fault an error is.
    pub(super) fn read(&mut self, into: &mut [u8]) -> Result<usize, UnpackError> {
        loop {
            let error = match self.source.read(into) {
                Ok(bytes) => return Ok(bytes),
                Err(error) => error,
            };
            if error.kind() == ErrorKind::Interrupted {
                self.input.failed.store(false, Ordering::Relaxed);
            } else if self.packed && !self.input.failed.load(Ordering::Relaxed) {
                return Err(UnpackError::Damaged(error.to_string()));
            } else {
                return Err(UnpackError::Io(error));
            }
        }
    }
}

#[derive(PartialEq)]
enum Packing {
    None,
    Gzip,
    Xz,
    Zstd,
}

impl Packing {
    fn of(first: &[u8]) -> Self {
        let skipped = first.first_chunk().is_some_and(|it| is_skipped(*it));
        match first {
            _ if first.starts_with(&GZIP) => Self::Gzip,
            _ if first.starts_with(&XZ) => Self::Xz,
            _ if first.starts_with(&ZSTD) || skipped => Self::Zstd,
            _ => Self::None,
        }
    }
}

/// Notes what passes.
struct Tap<R> {
    raw: R,
    input: Arc<Input>,
}

impl<R: Read> Read for Tap<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.raw.read(into);
        match &read {
            Ok(bytes) => drop(self.input.bytes.fetch_add(*bytes as u64, Ordering::Relaxed)),
            Err(_) => self.input.failed.store(true, Ordering::Relaxed),
        }
        read
    }
}

fn is_skipped(magic: [u8; 4]) -> bool {
    u32::from_le_bytes(magic) & !0xf == ZSTD_SKIPPED
}

/// All members of a file. Zeros behind one are padding, as of tapes and of copies in whole blocks;
/// gzip(1) passes them too.
struct Gzip<R> {
    /// None once there is no other.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Gzip<R> {
    /// Begins what lies behind this member.
    fn next(member: GzDecoder<R>) -> io::Result<Option<GzDecoder<R>>> {
        let mut source = member.into_inner();
        loop {
            let bytes = source.fill_buf()?;
            let zeros = bytes.iter().take_while(|it| **it == 0).count();
            match bytes.len() {
                0 => return Ok(None),
                all if zeros < all => {
                    source.consume(zeros);
                    return Ok(Some(GzDecoder::new(source)));
                }
                _ => source.consume(zeros),
            }
        }
    }
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let bytes = member.read(into)?;
            if bytes > 0 || into.is_empty() {
                return Ok(bytes);
            }
            self.member = self.member.take().map_or(Ok(None), Self::next)?;
        }
        Ok(0)
    }
}

/// All streams of a file. Of one that is cut all comes that is there; the crate's own reader gives
/// nothing of the last 64 KiB.
struct Xz<R> {
    source: R,
    stream: XzStream,
    /// What came after what was unpacked last.
    failed: Option<io::Error>,
}

impl<R: BufRead> Read for Xz<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        loop {
            let input = self.source.fill_buf()?;
            let (ended, before) = (input.is_empty(), self.stream.total_out());
            let done = self.stream.process(input, into, if ended { Action::Finish } else { Action::Run });
            let unpacked = (self.stream.total_out() - before) as usize;
            match done {
                Ok(done) => {
                    self.source.consume(done.bytes_consumed);
                    if unpacked > 0 || done.status == Status::StreamEnd || into.is_empty() {
                        return Ok(unpacked);
                    }
                }
                Err(error) if unpacked > 0 => {
                    self.failed = Some(error);
                    return Ok(unpacked);
                }
                Err(error) => return Err(error),
            }
            if ended {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// A block of zstd that is the last of its frame and empty, and a checksum.
const ZSTD_END: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

/// All frames of a file; ruzstd does one at a time, and leaves its checksum to be compared.
struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    inside: bool,
    /// Why the frame ends before its end; what was unpacked of it comes first.
    cut: Option<io::Error>,
}

impl<R: BufRead> Zstd<R> {
    fn new(source: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_BYTES_MAX);
        Self { source, decoder, inside: false, cut: None }
    }

    /// Begins the next frame. Returns whether there is one.
    fn begin(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            let mut magic = [0; 4];
            self.source.read_exact(&mut magic)?;
            if !is_skipped(magic) {
                let begun = self.decoder.reset(Cursor::new(magic).chain(&mut self.source));
                self.inside = true;
                return begun.map(|()| true).map_err(io::Error::other);
            }
            let mut bytes = [0; 4];
            self.source.read_exact(&mut bytes)?;
            let bytes = u64::from(u32::from_le_bytes(bytes));
            if io::copy(&mut (&mut self.source).take(bytes), &mut io::sink())? < bytes {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Unpacks some more. The decoder holds the last window of a frame back until that ends: so
    /// does one that is cut, at once.
    fn decode(&mut self) {
        let one = BlockDecodingStrategy::UptoBlocks(1);
        if let Err(error) = self.decoder.decode_blocks(&mut self.source, one) {
            let end = BlockDecodingStrategy::UptoBlocks(1);
            let ended = self.decoder.decode_blocks(&ZSTD_END[..], end);
            self.cut = Some(io::Error::other(ended.err().unwrap_or(error)));
        }
    }

    fn end(&mut self) -> io::Result<()> {
        self.inside = false;
        if let Some(error) = self.cut.take() {
            return Err(error);
        }
        let (stored, found) = (self.decoder.get_checksum_from_data(), self.decoder.get_calculated_checksum());
        if stored.is_some() && stored != found {
            return Err(io::Error::new(ErrorKind::InvalidData, "the checksum of a frame is wrong"));
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.inside && !self.begin()? {
                return Ok(0);
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() && self.cut.is_none() {
                self.decode();
            }
            if self.decoder.can_collect() > 0 || into.is_empty() {
                return self.decoder.read(into);
            }
            self.end()?;
        }
    }
}
