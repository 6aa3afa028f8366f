// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a trace as a stream of records, in one buffer, whatever its length.
//!
//! Each piece of the trace becomes a record, is skipped by kind, or is bad, with place and reason:
//! nothing is dropped in silence. Bad lines don't end a trace, unless that is asked for. A damaged
//! file ends where its damage begins.
//!
//! A line or record whose time is far from both neighbours is bad as well (`times.rs` has the
//! rule). Steps that last are left as they are: whoever needs a clock makes one of the times.

use std::fmt::{self, Display};
use std::io::{self, Read};

use super::action::Action;
use super::buffer::{BUFFER_BYTES, Buffer};
use super::compressed::{UnpackError, Unpacked};
use super::format::{Format, FormatError};
use super::head::Head;
use super::item::{Item, Parser, RECORD_BYTES_MAX};
use super::record::Record;
use super::report::{Bad, Position, Reason, Report};
use super::times::Times;

/// The longest line. Longer lines are bad: those of a trace have some hundreds of bytes.
const LINE_BYTES_MAX: usize = 64 << 10;

/// The first bytes that the format is found by.
const HEAD_BYTES: usize = 64 << 10;

/// Windows programs put these bytes before text in UTF-8. No format has them in its first line.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

const _: () = assert!(BUFFER_BYTES > 2 * LINE_BYTES_MAX && BUFFER_BYTES > 2 * RECORD_BYTES_MAX);

/// The way in which a trace is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The format, if it shall not be guessed.
    pub format: Option<&'static Format>,
    /// Whether the first bad line is an error.
    pub strict: bool,
    /// The event of blktrace and blkparse that counts as a request.
    pub action: Action,
}

/// A trace can't be read at all.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The file can't be read.
    Io(io::Error),
    /// The trace is compressed, and damaged from its beginning.
    Damaged(String),
    /// The format is not known.
    Format(FormatError),
}

impl Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "can't read the trace: {error}"),
            Self::Damaged(why) => {
                write!(f, "the compressed data is cut or damaged, and nothing of it can be unpacked: {why}")
            }
            Self::Format(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<UnpackError> for OpenError {
    fn from(error: UnpackError) -> Self {
        match error {
            UnpackError::Io(error) => Self::Io(error),
            UnpackError::Damaged(why) => Self::Damaged(why),
        }
    }
}

/// A trace ends before its end.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// The file can't be read on.
    Io(io::Error),
    /// The first bad line, where that ends a trace.
    Bad(Box<Bad>),
}

impl Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "can't read on in the trace: {error}"),
            Self::Bad(bad) => bad.fmt(f),
        }
    }
}

impl std::error::Error for ReadError {}

/// A trace that is being read.
pub struct Reader {
    buffer: Buffer,
    format: &'static Format,
    parser: Parser,
    lines: u64,
    /// Whether the reader is inside a line that is too long.
    too_long: bool,
    strict: bool,
    over: bool,
    times: Times,
    report: Report,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("format", &self.format.name)
            .field("report", &self.report)
            .finish_non_exhaustive()
    }
}

impl Reader {
    /// Reads from a file or a pipe, packed or not.
    ///
    /// # Errors
    /// If nothing can be read, or the format isn't given and can't be told from the first 64 KiB.
    pub fn new(raw: impl Read + Send + 'static, options: &Options) -> Result<Self, OpenError> {
        let mut buffer = Buffer::new(Unpacked::new(raw).map_err(OpenError::Io)?);
        while buffer.unread().len() < HEAD_BYTES && buffer.end.is_none() {
            buffer.fill();
        }
        if buffer.unread().is_empty() {
            match buffer.end.take() {
                Some(Err(error)) => return Err(error.into()),
                end => buffer.end = end,
            }
        }
        let mark = if buffer.unread().starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        let head = Head { bytes: &buffer.unread()[mark..], whole: buffer.ended_well() };
        let format = match (options.format.map_or_else(|| Format::of(&head), Ok), buffer.end.take()) {
            // The bytes show no format, and it is known why there are no more.
            (Err(FormatError::Unknown), Some(Err(error))) => return Err(error.into()),
            (format, end) => {
                buffer.end = end;
                format.map_err(OpenError::Format)?
            }
        };
        let parser = (format.parser)(options.action);
        if matches!(parser, Parser::Lines(_)) {
            buffer.pass(mark);
        }
        Ok(Self {
            buffer,
            format,
            parser,
            lines: 0,
            too_long: false,
            strict: options.strict,
            over: false,
            times: Times::default(),
            report: Report::default(),
        })
    }

    /// The format, as given or found.
    #[must_use]
    pub fn format(&self) -> &'static Format {
        self.format
    }

    /// What became of the trace so far.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Bytes of the file, packed as it is, that were read so far: for showing progress.
    #[must_use]
    pub fn input_bytes(&self) -> u64 {
        self.buffer.input_bytes()
    }

    /// Counts a line or record that could not be read. With `strict` that is an error.
    fn bad(&mut self, bad: Bad) -> Option<Result<Record, ReadError>> {
        let error = self.strict.then(|| Err(ReadError::Bad(Box::new(bad.clone()))));
        self.over |= self.strict;
        self.report.add_bad(bad);
        error
    }

    /// Counts an item. A record is judged by its time, with the complaint that it may deserve.
    fn found(&mut self, item: Item, complaint: Option<Bad>) -> Option<Result<Record, ReadError>> {
        match item {
            Item::Record(record) => match self.times.add(record, complaint) {
                Some(bad) => self.bad(bad),
                None => None,
            },
            Item::Skipped(kind) => {
                self.report.skip(kind);
                None
            }
        }
        .or_else(|| self.believed())
    }

    /// The next record that is known to be sound.
    fn believed(&mut self) -> Option<Result<Record, ReadError>> {
        let record = self.times.next()?;
        self.report.records += 1;
        Some(Ok(record))
    }

    /// Ends the trace. The rest is half a record at most. If the trace ended for a bad reason, the
    /// rest may be half a line. Half a line is not read, since half a number is a number.
    fn finish(&mut self) -> Option<Result<Record, ReadError>> {
        self.over = true;
        let place = Position::Byte(self.buffer.passed);
        let rest = self.buffer.unread().len();
        match self.buffer.end.take() {
            Some(Err(UnpackError::Io(error))) => Some(Err(ReadError::Io(error))),
            Some(Err(UnpackError::Damaged(why))) => self.bad(Bad::new(place, Reason::Damaged(why), b"")),
            _ if rest > 0 => self.bad(Bad::new(place, Reason::Cut(rest), b"")),
            _ => None,
        }
    }

    fn next_line(&mut self) -> Option<Result<Record, ReadError>> {
        // The number of bytes that were searched for the end of a line.
        let mut searched = 0;
        loop {
            let unread = self.buffer.unread();
            let end = memchr::memchr(b'\n', &unread[searched..]).map(|at| searched + at);
            // The last line may lack its end.
            let last = self.buffer.ended_well() && !unread.is_empty();
            let Some(length) = end.or(last.then_some(unread.len())) else {
                searched = unread.len();
                if searched > LINE_BYTES_MAX {
                    if let Some(error) = self.pass_long_line(searched) {
                        return Some(error);
                    }
                    searched = 0;
                } else if self.buffer.end.is_some() {
                    return self.finish();
                }
                self.buffer.fill();
                continue;
            };
            self.lines += 1;
            let place = Position::Line(self.lines);
            let line = &unread[..length];
            let item = match &mut self.parser {
                _ if std::mem::take(&mut self.too_long) => None,
                _ if length > LINE_BYTES_MAX => Some(Err(Bad::new(place, Reason::LineTooLong, line))),
                Parser::Lines(parser) => Some(match parser.line(line) {
                    Ok(item) => {
                        let complaint = self.times.complaint(&item, place, line);
                        Ok((item, complaint))
                    }
                    Err(reason) => Err(Bad::new(place, reason, line)),
                }),
                Parser::Binary(_) => None,
            };
            self.buffer.pass(length + usize::from(end.is_some()));
            searched = 0;
            let found = match item {
                Some(Ok((item, complaint))) => self.found(item, complaint),
                Some(Err(bad)) => self.bad(bad),
                None => None,
            };
            if found.is_some() {
                return found;
            }
        }
    }

    /// Passes bytes of a line that is too long. The first of these bytes are reported as a bad
    /// line.
    fn pass_long_line(&mut self, bytes: usize) -> Option<Result<Record, ReadError>> {
        let first = !std::mem::replace(&mut self.too_long, true);
        let bad = first.then(|| Bad::new(Position::Line(self.lines + 1), Reason::LineTooLong, self.buffer.unread()));
        self.buffer.pass(bytes);
        bad.and_then(|bad| self.bad(bad))
    }

    fn next_record(&mut self) -> Option<Result<Record, ReadError>> {
        loop {
            let Parser::Binary(parser) = &mut self.parser else { return None };
            let Some((bytes, item)) = parser.item(self.buffer.unread()) else {
                if self.buffer.end.is_some() {
                    return self.finish();
                }
                self.buffer.fill();
                continue;
            };
            let place = Position::Byte(self.buffer.passed);
            self.buffer.pass(bytes);
            let found = match item {
                Ok(item) => {
                    let complaint = self.times.complaint(&item, place, b"");
                    self.found(item, complaint)
                }
                Err(reason) => self.bad(Bad::new(place, reason, b"")),
            };
            if found.is_some() {
                return found;
            }
        }
    }
}

impl Iterator for Reader {
    type Item = Result<Record, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(record) = self.believed() {
            return Some(record);
        }
        if self.over {
            return None;
        }
        let next = match self.parser {
            Parser::Lines(_) => self.next_line(),
            Parser::Binary(_) => self.next_record(),
        };
        next.or_else(|| {
            self.times.end();
            self.believed()
        })
    }
}
