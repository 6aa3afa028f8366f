// SPDX-License-Identifier: MIT OR Apache-2.0
//! The handshake of a client, fixed newstyle: from the greeting to the answer to GO.
//!
//! One option is asked for at a time: TLS, extended headers or structured replies, contexts, the
//! export. What the server said before TLS is not believed afterwards. A server that does not know
//! GO is given the name of the export (EXPORT_NAME): it answers by the size, or it hangs up.

use super::error::Broken;
use super::info::{ExportInfo, Wanted};
use crate::wire::{
    ANSWER_HEADER_BYTES, Fields, MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, Replies, answer, encode_option,
    handshake_flag, info, len_before, option,
};

/// The longest answer to an option that is believed.
pub(super) const ANSWER_BYTES_MAX: usize = 64 << 10;
const GREETING_BYTES: usize = 18;
/// Zeroes behind the answer to EXPORT_NAME, unless both ends do without.
const ZEROES: usize = 124;

/// A metadata context that was selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// The server's number for it.
    pub(super) id: u32,
    /// Its name.
    pub name: String,
}

/// What was agreed on.
#[derive(Clone, Debug)]
pub(super) struct Opened {
    pub(super) info: ExportInfo,
    pub(super) replies: Replies,
    pub(super) contexts: Vec<Context>,
}

/// What bytes meant.
#[derive(Debug)]
pub(super) enum Step {
    Need,
    Took(usize),
    StartTls(usize),
    Open(usize, Opened),
}

/// What the server is to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Greeting,
    StartTls,
    Extended,
    Structured,
    Contexts,
    Go,
    ExportName,
}

/// Where a client is in its handshake.
#[derive(Clone, Debug)]
pub(super) struct Handshake {
    wanted: Wanted,
    asked: Asked,
    opened: Opened,
    /// The server has told the size.
    sized: bool,
    /// Both ends do without [`ZEROES`].
    no_zeroes: bool,
}

impl Handshake {
    pub(super) fn new(wanted: Wanted) -> Self {
        let opened = Opened { info: ExportInfo::NONE, replies: Replies::Simple, contexts: Vec::new() };
        Self { wanted, asked: Asked::Greeting, opened, sized: false, no_zeroes: false }
    }

    /// Goes on inside TLS.
    pub(super) fn enter_tls(&mut self, out: &mut Vec<u8>) {
        self.ask_for_replies(self.wanted.replies, out);
    }

    pub(super) fn step(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Step, Broken> {
        if self.asked == Asked::Greeting {
            return self.greeted(input, out);
        }
        if self.asked == Asked::ExportName {
            return Ok(self.named(input));
        }
        let mut fields = Fields(input);
        let (Some(magic), Some(of), Some(kind), Some(len)) = (fields.u64(), fields.u32(), fields.u32(), fields.u32())
        else {
            return Ok(Step::Need);
        };
        if magic != OPTION_REPLY_MAGIC || of != self.option() || len as usize > ANSWER_BYTES_MAX {
            return Err(Broken::Protocol("no answer to the option"));
        }
        let Some(data) = fields.take(len as usize) else { return Ok(Step::Need) };
        let took = ANSWER_HEADER_BYTES + data.len();
        self.answered(kind, data, input.len() - took, out).map(|next| match next {
            Next::Took => Step::Took(took),
            Next::StartTls => Step::StartTls(took),
            Next::Open => Step::Open(took, self.opened.clone()),
        })
    }

    fn greeted(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Step, Broken> {
        let mut fields = Fields(input);
        let (Some(first), Some(second), Some(flags)) = (fields.u64(), fields.u64(), fields.u16()) else {
            return Ok(Step::Need);
        };
        if (first, second) != (MAGIC, OPTION_MAGIC) {
            return Err(Broken::Protocol("no newstyle greeting"));
        }
        let flags = flags & (handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
        self.no_zeroes = flags & handshake_flag::NO_ZEROES != 0;
        out.extend_from_slice(&u32::from(flags).to_be_bytes());
        match (flags & handshake_flag::FIXED_NEWSTYLE != 0, self.wanted.tls) {
            (true, true) => self.ask(Asked::StartTls, &[], out),
            (true, false) => self.ask_for_replies(self.wanted.replies, out),
            (false, true) => return Err(Broken::Protocol("not fixed newstyle, so there is no TLS")),
            // Such a server answers no other option.
            (false, false) => drop(self.name(out)),
        }
        Ok(Step::Took(GREETING_BYTES))
    }

    /// Chooses the export as servers without GO know it.
    fn name(&mut self, out: &mut Vec<u8>) -> Next {
        let name = self.wanted.export.clone();
        self.ask(Asked::ExportName, name.as_bytes(), out);
        Next::Took
    }

    /// Takes the answer to EXPORT_NAME, which has no header.
    fn named(&mut self, input: &[u8]) -> Step {
        let mut fields = Fields(input);
        let (Some(size_bytes), Some(flags)) = (fields.u64(), fields.u16()) else { return Step::Need };
        if !self.no_zeroes && fields.take(ZEROES).is_none() {
            return Step::Need;
        }
        self.opened.info = ExportInfo { size_bytes, flags, ..ExportInfo::NONE };
        Step::Open(input.len() - fields.0.len(), self.opened.clone())
    }

    fn answered(&mut self, kind: u32, data: &[u8], behind: usize, out: &mut Vec<u8>) -> Result<Next, Broken> {
        let refused = kind & answer::ERROR != 0;
        match (self.asked, kind) {
            // The server says nothing more before TLS. So somebody else did, to be taken for the
            // server's first words inside TLS (like CVE-2021-3716).
            (Asked::StartTls, answer::ACK) if behind > 0 => Err(Broken::Protocol("words between STARTTLS and TLS")),
            (Asked::StartTls, answer::ACK) => Ok(Next::StartTls),
            (Asked::StartTls, _) if refused => Err(self.refused(kind, data)),
            (_, answer::TLS_REQUIRED) => Err(self.refused(kind, data)),
            (Asked::Extended, answer::ACK) => Ok(self.agreed_on(Replies::Extended, out)),
            (Asked::Extended, _) if refused => {
                self.ask_for_replies(Replies::Structured, out);
                Ok(Next::Took)
            }
            (Asked::Structured, answer::ACK) => Ok(self.agreed_on(Replies::Structured, out)),
            (Asked::Structured, _) if refused => Ok(self.agreed_on(Replies::Simple, out)),
            (Asked::Contexts, answer::META_CONTEXT) => self.note_context(data),
            (Asked::Contexts, answer::ACK) => Ok(self.go(out)),
            (Asked::Contexts, _) if refused => {
                self.opened.contexts.clear();
                Ok(self.go(out))
            }
            (Asked::Go, answer::INFO) => {
                self.opened.info.note(data).map_err(Broken::Protocol)?;
                self.sized |= data.starts_with(&info::EXPORT.to_be_bytes());
                Ok(Next::Took)
            }
            (Asked::Go, answer::ACK) if self.sized => Ok(Next::Open),
            (Asked::Go, answer::ACK) => Err(Broken::Protocol("an export without a size")),
            (Asked::Go, answer::UNSUPPORTED) => {
                // What was told before that is of no export.
                (self.opened.info, self.sized) = (ExportInfo::NONE, false);
                Ok(self.name(out))
            }
            (Asked::Go, _) if refused => Err(self.refused(kind, data)),
            _ => Err(Broken::Protocol("no answer to the option")),
        }
    }

    fn ask_for_replies(&mut self, replies: Replies, out: &mut Vec<u8>) {
        match replies {
            Replies::Extended => self.ask(Asked::Extended, &[], out),
            Replies::Structured => self.ask(Asked::Structured, &[], out),
            Replies::Simple => drop(self.go(out)),
        }
    }

    fn agreed_on(&mut self, replies: Replies, out: &mut Vec<u8>) -> Next {
        self.opened.replies = replies;
        if replies == Replies::Simple || self.wanted.contexts.is_empty() {
            return self.go(out);
        }
        let mut data = string(&self.wanted.export);
        data.extend_from_slice(&(self.wanted.contexts.len() as u32).to_be_bytes());
        self.wanted.contexts.iter().for_each(|name| data.extend(string(name)));
        self.ask(Asked::Contexts, &data, out);
        Next::Took
    }

    fn note_context(&mut self, data: &[u8]) -> Result<Next, Broken> {
        let mut fields = Fields(data);
        let id = fields.u32().ok_or(Broken::Protocol("a short metadata context"))?;
        let name = String::from_utf8_lossy(fields.0).into_owned();
        let known = self.opened.contexts.iter().any(|context| context.id == id || context.name == name);
        if known || !self.wanted.contexts.contains(&name) {
            return Err(Broken::Protocol("a metadata context that was not asked for"));
        }
        self.opened.contexts.push(Context { id, name });
        Ok(Next::Took)
    }

    fn go(&mut self, out: &mut Vec<u8>) -> Next {
        let mut data = string(&self.wanted.export);
        data.extend_from_slice(&1u16.to_be_bytes());
        data.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
        self.ask(Asked::Go, &data, out);
        Next::Took
    }

    fn ask(&mut self, asked: Asked, data: &[u8], out: &mut Vec<u8>) {
        self.asked = asked;
        encode_option(out, self.option(), data);
    }

    /// The option that is asked for.
    fn option(&self) -> u32 {
        match self.asked {
            Asked::Greeting => option::ABORT,
            Asked::StartTls => option::STARTTLS,
            Asked::Extended => option::EXTENDED_HEADERS,
            Asked::Structured => option::STRUCTURED_REPLY,
            Asked::Contexts => option::SET_META_CONTEXT,
            Asked::Go => option::GO,
            Asked::ExportName => option::EXPORT_NAME,
        }
    }

    fn refused(&self, kind: u32, data: &[u8]) -> Broken {
        let text = String::from_utf8_lossy(data).into_owned();
        Broken::Refused { name: self.wanted.export.clone(), kind, text }
    }
}

/// How a handshake goes on after an answer.
enum Next {
    Took,
    StartTls,
    Open,
}

/// A string with its length before it.
fn string(text: &str) -> Vec<u8> {
    [&len_before(text.as_bytes()), text.as_bytes()].concat()
}
