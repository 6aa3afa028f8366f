// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client's side of the handshake: greeting, structured replies, GO.

use std::io::Read;

use super::super::PAYLOAD_BYTES_MAX;
use super::super::wire::{self, Fields, MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, answer, handshake_flag, info, option};
use super::{ANSWER_BYTES_MAX, Client, ClientError, ExportInfo};

impl Client {
    /// From the connection to the transmission phase.
    pub(super) fn shake_hands(&mut self, name: &str, structured: bool) -> Result<(), ClientError> {
        self.greet()?;
        if structured {
            wire::encode_option(&mut self.output, option::STRUCTURED_REPLY, &[]);
            let (kind, _) = self.answer(option::STRUCTURED_REPLY)?;
            self.structured = kind == answer::ACK;
        }
        self.go(name)
    }

    fn greet(&mut self) -> Result<(), ClientError> {
        let magic = (u64::from_be_bytes(self.array()?), u64::from_be_bytes(self.array()?));
        if magic != (MAGIC, OPTION_MAGIC) {
            return Err(ClientError::Protocol("no newstyle greeting"));
        }
        let flags = u16::from_be_bytes(self.array()?);
        if flags & handshake_flag::FIXED_NEWSTYLE == 0 {
            return Err(ClientError::Protocol("not fixed newstyle"));
        }
        let flags = flags & (handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
        self.output.extend_from_slice(&u32::from(flags).to_be_bytes());
        Ok(())
    }

    fn go(&mut self, name: &str) -> Result<(), ClientError> {
        let mut data = wire::wire_len(name.as_bytes()).to_vec();
        data.extend_from_slice(name.as_bytes());
        data.extend_from_slice(&1u16.to_be_bytes());
        data.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
        wire::encode_option(&mut self.output, option::GO, &data);
        self.info = ExportInfo {
            block_bytes: 512,
            preferred_bytes: 4096,
            payload_bytes_max: PAYLOAD_BYTES_MAX,
            ..ExportInfo::default()
        };
        loop {
            let (kind, data) = self.answer(option::GO)?;
            match kind {
                answer::ACK => return Ok(()),
                answer::INFO => {
                    let short = ClientError::Protocol("a short answer to GO");
                    self.note_info(&data).ok_or(short)?;
                }
                _ => {
                    let text = String::from_utf8_lossy(&data).into_owned();
                    return Err(ClientError::Refused { name: name.to_owned(), kind, text });
                }
            }
        }
    }

    fn note_info(&mut self, data: &[u8]) -> Option<()> {
        let mut fields = Fields(data);
        match fields.u16()? {
            info::EXPORT => {
                self.info.size_bytes = fields.u64()?;
                self.info.flags = fields.u16()?;
            }
            info::BLOCK_SIZE => {
                self.info.block_bytes = fields.u32()?;
                self.info.preferred_bytes = fields.u32()?;
                self.info.payload_bytes_max = fields.u32()?;
            }
            _ => {}
        }
        Some(())
    }

    /// Sends what is queued and takes one answer to `option`.
    fn answer(&mut self, option: u32) -> Result<(u32, Vec<u8>), ClientError> {
        self.send()?;
        let magic = u64::from_be_bytes(self.array()?);
        let of = u32::from_be_bytes(self.array()?);
        let kind = u32::from_be_bytes(self.array()?);
        let len = u32::from_be_bytes(self.array()?);
        if magic != OPTION_REPLY_MAGIC || of != option || len > ANSWER_BYTES_MAX {
            return Err(ClientError::Protocol("no answer to the option"));
        }
        let mut data = vec![0; len as usize];
        self.input.read_exact(&mut data)?;
        Ok((kind, data))
    }
}
