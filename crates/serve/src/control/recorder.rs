// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operator's end of a recording of a volume.

use std::io::{self, BufReader, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use super::record::FRAME_BYTES;
use super::{Client, ClientError, Command, Response};
use crate::tap::{Batch, TAPPED_BYTES, Tapped};

/// A frame has at most what a daemon notes for a recorder, and no daemon of another version much
/// more.
const REQUESTS_MAX: usize = 1 << 20;

/// A recording that is under way.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    stream: BufReader<UnixStream>,
    began_ns: u64,
    volume: String,
    ended: bool,
}

impl Client {
    /// Asks for the requests of a volume from now on: of the one of that name, or of the only one.
    ///
    /// # Errors
    /// [`ClientError`]: there is no such volume, or there are too many recordings.
    pub fn record(mut self, volume: Option<String>) -> Result<Recorder, ClientError> {
        match self.call(&Command::Record { volume })? {
            Response::Recording { volume, began_ns, .. } => {
                let (path, stream) = self.into_parts();
                Ok(Recorder { path, stream, began_ns, volume, ended: false })
            }
            other => Err(ClientError::Refused(format!("an answer to another question: {other:?}"))),
        }
    }
}

impl Recorder {
    /// The volume's name.
    #[must_use]
    pub fn volume(&self) -> &str {
        &self.volume
    }

    /// When it began, by the clock of the requests.
    #[must_use]
    pub const fn began_ns(&self) -> u64 {
        self.began_ns
    }

    /// Says that no more is wanted; what was noted until then still comes.
    pub fn stop(&mut self) {
        // A daemon that has gone says so itself.
        let _ = self.stream.get_ref().shutdown(Shutdown::Write);
    }

    /// Returns the requests since the last time, 20 times a second; `None` at the end, or when the
    /// daemon has ended.
    ///
    /// # Errors
    /// The daemon does not answer any more, or its answer is not understood.
    pub fn next_batch(&mut self) -> Result<Option<Batch>, ClientError> {
        if self.ended {
            return Ok(None);
        }
        let mut head = [0; FRAME_BYTES];
        if !self.read(&mut head)? {
            return Ok(None);
        }
        let word = |at: usize| head[at..].first_chunk().map_or(0, |it| u32::from_le_bytes(*it));
        let lost = head[8..].first_chunk().map_or(0, |it| u64::from_le_bytes(*it));
        self.ended = word(4) != 0;
        let count = word(0) as usize;
        let mut bytes = vec![0; count.min(REQUESTS_MAX) * TAPPED_BYTES];
        if !self.read(&mut bytes)? {
            return Ok(None);
        }
        let requests: Option<Vec<Tapped>> = bytes.as_chunks().0.iter().map(Tapped::from_bytes).collect();
        match requests.filter(|_| count <= REQUESTS_MAX) {
            Some(requests) => Ok(Some(Batch { requests, lost })),
            None => Err(ClientError::Refused("it sends requests in a way that this program does not know".to_owned())),
        }
    }

    /// Fills the buffer; false if the daemon has ended.
    fn read(&mut self, into: &mut [u8]) -> Result<bool, ClientError> {
        match self.stream.read_exact(into) {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
                Ok(false)
            }
            Err(source) => Err(ClientError::Gone { path: self.path.clone(), source }),
        }
    }
}
