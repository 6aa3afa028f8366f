// SPDX-License-Identifier: MIT OR Apache-2.0
//! The handshake of a server, fixed newstyle: from the greeting to the choice of an export.
//!
//! It takes the bytes that are there, and appends the answers. Options longer than
//! [`OPTION_BYTES_MAX`] are skipped unread, so only the caller's read buffer holds them. At
//! STARTTLS the caller goes on inside TLS. All that was agreed on before is forgotten: an attacker
//! on the way may have said it.

use super::context::{NAME_BYTES_MAX, answer_contexts};
use super::export::{Agreed, Export, find};
use crate::wire::{
    self, Fields, MAGIC, OPTION_HEADER_BYTES, OPTION_MAGIC, Replies, answer, handshake_flag, info, option,
};

/// The longest option that is looked at. A GO with the longest name and all kinds of
/// information is a tenth of it.
pub(crate) const OPTION_BYTES_MAX: u32 = 64 << 10;

/// The part that TLS plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Security {
    /// There is no TLS.
    Off,
    /// The client may ask for it (the protocol's SELECTIVETLS).
    Offered,
    /// The client must ask for it before all else (the protocol's FORCEDTLS).
    Required,
    /// We are inside it.
    On,
}

/// The state of a client's handshake.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Handshake {
    security: Security,
    greeted: bool,
    no_zeroes: bool,
    replies: Replies,
    /// The export for which `base:allocation` is selected.
    allocation: Option<usize>,
    /// Bytes of a refused option still to come.
    skip: u64,
}

/// The meaning of the bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// There are not enough of them.
    Need,
    /// This many are done with.
    Took(usize),
    /// The client has chosen; these many are done with, and requests follow.
    Start { took: usize, export: usize, agreed: Agreed },
    /// These bytes are done with; once the answer is sent, the conversation goes on inside TLS.
    StartTls(usize),
    /// Send what is queued and close.
    End,
}

impl Handshake {
    pub(crate) fn new(security: Security) -> Self {
        Self { security, greeted: false, no_zeroes: false, replies: Replies::Simple, allocation: None, skip: 0 }
    }

    /// The handshake begins again inside TLS. Only the client's flags still count: they are not
    /// said again.
    pub(crate) fn encrypted(self) -> Self {
        Self { greeted: self.greeted, no_zeroes: self.no_zeroes, ..Self::new(Security::On) }
    }

    /// The server's first words.
    pub(crate) fn greet(out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC.to_be_bytes());
        out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        let flags = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
        out.extend_from_slice(&flags.to_be_bytes());
    }

    /// Looks at what a client said; `out` takes the answer.
    pub(crate) fn step(&mut self, input: &[u8], exports: &[Export], out: &mut Vec<u8>) -> Step {
        if self.skip > 0 {
            let took = usize::try_from(self.skip).map_or(input.len(), |skip| skip.min(input.len()));
            self.skip -= took as u64;
            return if took == 0 { Step::Need } else { Step::Took(took) };
        }
        let mut fields = Fields(input);
        if !self.greeted {
            let Some(flags) = fields.u32() else {
                return Step::Need;
            };
            let known = u32::from(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
            if flags & !known != 0 {
                return Step::End;
            }
            self.no_zeroes = flags & u32::from(handshake_flag::NO_ZEROES) != 0;
            self.greeted = true;
            return Step::Took(4);
        }
        let (Some(magic), Some(option), Some(len)) = (fields.u64(), fields.u32(), fields.u32()) else {
            return Step::Need;
        };
        if magic != OPTION_MAGIC {
            return Step::End;
        }
        if self.security == Security::Required && !matches!(option, option::STARTTLS | option::ABORT) {
            if option == option::EXPORT_NAME {
                return Step::End;
            }
            self.skip = u64::from(len);
            wire::encode_answer(out, option, answer::TLS_REQUIRED, b"this server wants TLS first");
            return Step::Took(OPTION_HEADER_BYTES);
        }
        if len > OPTION_BYTES_MAX {
            if option == option::EXPORT_NAME {
                return Step::End;
            }
            self.skip = u64::from(len);
            if option == option::SET_META_CONTEXT {
                self.allocation = None;
            }
            wire::encode_answer(out, option, answer::TOO_BIG, b"option longer than 64 KiB");
            return Step::Took(OPTION_HEADER_BYTES);
        }
        let Some(data) = fields.take(len as usize) else {
            return Step::Need;
        };
        let took = OPTION_HEADER_BYTES + data.len();
        match option {
            option::EXPORT_NAME => {
                // The one option that can't be refused with words; with extended headers no client
                // may use it.
                let Some(export) = find(exports, data).filter(|_| self.replies != Replies::Extended) else {
                    return Step::End;
                };
                self.answer_export_name(&exports[export], out);
                Step::Start { took, export, agreed: self.agreed(export, false) }
            }
            option::ABORT => {
                wire::encode_answer(out, option, answer::ACK, &[]);
                Step::End
            }
            option::INFO | option::GO => match self.answer_info(option, data, exports, out) {
                Some((export, sized)) if option == option::GO => {
                    Step::Start { took, export, agreed: self.agreed(export, sized) }
                }
                _ => Step::Took(took),
            },
            option::LIST | option::STRUCTURED_REPLY | option::EXTENDED_HEADERS | option::STARTTLS
                if !data.is_empty() =>
            {
                wire::encode_answer(out, option, answer::INVALID, b"this option has no data");
                Step::Took(took)
            }
            option::LIST => {
                for export in exports {
                    let mut data = wire::len_before(export.name.as_bytes()).to_vec();
                    data.extend_from_slice(export.name.as_bytes());
                    data.extend_from_slice(export.description.as_bytes());
                    wire::encode_answer(out, option, answer::SERVER, &data);
                }
                wire::encode_answer(out, option, answer::ACK, &[]);
                Step::Took(took)
            }
            option::STRUCTURED_REPLY if self.replies == Replies::Extended => {
                let why = b"extended headers were agreed on, and include structured replies";
                wire::encode_answer(out, option, answer::EXTENDED_HEADERS_REQUIRED, why);
                Step::Took(took)
            }
            option::STRUCTURED_REPLY => {
                self.replies = Replies::Structured;
                wire::encode_answer(out, option, answer::ACK, &[]);
                Step::Took(took)
            }
            option::EXTENDED_HEADERS if self.replies == Replies::Extended => {
                wire::encode_answer(out, option, answer::INVALID, b"extended headers were agreed on already");
                Step::Took(took)
            }
            option::EXTENDED_HEADERS => {
                self.replies = Replies::Extended;
                wire::encode_answer(out, option, answer::ACK, &[]);
                Step::Took(took)
            }
            option::LIST_META_CONTEXT => {
                answer_contexts(option, data, exports, out);
                Step::Took(took)
            }
            option::SET_META_CONTEXT if self.replies == Replies::Simple => {
                self.allocation = None;
                let why = b"agree on structured replies or extended headers first";
                wire::encode_answer(out, option, answer::INVALID, why);
                Step::Took(took)
            }
            option::SET_META_CONTEXT => {
                self.allocation = answer_contexts(option, data, exports, out);
                Step::Took(took)
            }
            option::STARTTLS => match self.security {
                Security::Off => {
                    wire::encode_answer(out, option, answer::UNSUPPORTED, b"this server has no TLS");
                    Step::Took(took)
                }
                Security::On => {
                    wire::encode_answer(out, option, answer::INVALID, b"TLS has started already");
                    Step::Took(took)
                }
                // A client waits for the answer before it says more. So an attacker said this, to
                // be taken for the client's first words inside TLS (CVE-2021-3716).
                Security::Offered | Security::Required if input.len() > took => Step::End,
                Security::Offered | Security::Required => {
                    wire::encode_answer(out, option, answer::ACK, &[]);
                    Step::StartTls(took)
                }
            },
            _ => {
                wire::encode_answer(out, option, answer::UNSUPPORTED, &[]);
                Step::Took(took)
            }
        }
    }

    fn agreed(&self, export: usize, sized: bool) -> Agreed {
        Agreed { replies: self.replies, sized, allocation: self.allocation == Some(export) }
    }

    fn answer_export_name(&self, export: &Export, out: &mut Vec<u8>) {
        out.extend_from_slice(&export.size_bytes.to_be_bytes());
        out.extend_from_slice(&export.told_flags(self.replies).to_be_bytes());
        if !self.no_zeroes {
            out.extend_from_slice(&[0; 124]);
        }
    }

    /// Answers INFO and GO; the export if the option was accepted, and whether block sizes were
    /// asked for.
    fn answer_info(&self, option: u32, data: &[u8], exports: &[Export], out: &mut Vec<u8>) -> Option<(usize, bool)> {
        let Some((name, wanted)) = parse_info(data) else {
            wire::encode_answer(out, option, answer::INVALID, b"malformed INFO or GO");
            return None;
        };
        let Some(index) = find(exports, name) else {
            wire::encode_answer(out, option, answer::UNKNOWN, b"no export of that name");
            return None;
        };
        let export = &exports[index];

        let mut data = info::EXPORT.to_be_bytes().to_vec();
        data.extend_from_slice(&export.size_bytes.to_be_bytes());
        data.extend_from_slice(&export.told_flags(self.replies).to_be_bytes());
        wire::encode_answer(out, option, answer::INFO, &data);

        // Told whether asked or not: some clients don't ask and still heed it.
        data.clear();
        data.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
        for size in [export.sizes.minimum, export.sizes.preferred, export.sizes.maximum] {
            data.extend_from_slice(&size.to_be_bytes());
        }
        wire::encode_answer(out, option, answer::INFO, &data);

        if wanted.contains(&info::NAME) {
            data.clear();
            data.extend_from_slice(&info::NAME.to_be_bytes());
            data.extend_from_slice(export.name.as_bytes());
            wire::encode_answer(out, option, answer::INFO, &data);
        }
        if wanted.contains(&info::DESCRIPTION) {
            data.clear();
            data.extend_from_slice(&info::DESCRIPTION.to_be_bytes());
            data.extend_from_slice(export.description.as_bytes());
            wire::encode_answer(out, option, answer::INFO, &data);
        }
        wire::encode_answer(out, option, answer::ACK, &[]);
        Some((index, wanted.contains(&info::BLOCK_SIZE)))
    }
}

/// The name and the kinds of information wanted in an INFO or GO; `None` if malformed.
fn parse_info(data: &[u8]) -> Option<(&[u8], Vec<u16>)> {
    let mut fields = Fields(data);
    let len = fields.u32()? as usize;
    let name = fields.take(len).filter(|name| name.len() <= NAME_BYTES_MAX)?;
    let count = fields.u16()?;
    let wanted = (0..count).map(|_| fields.u16()).collect::<Option<Vec<_>>>()?;
    fields.0.is_empty().then_some((name, wanted))
}
