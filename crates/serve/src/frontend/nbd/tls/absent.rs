// SPDX-License-Identifier: MIT OR Apache-2.0
//! A build without TLS: it can be asked for, and says so.

use std::io::{self, IoSlice, IoSliceMut};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::TlsError;
use crate::frontend::nbd::stream::Socket;
use crate::upgrade::Parcel;

/// Never there.
#[derive(Clone, Debug)]
pub enum Tls {}

impl Tls {
    /// # Errors
    /// Always.
    pub fn load(_dir: &Path, _verify_peer: bool) -> Result<Self, TlsError> {
        Err(TlsError::NotBuilt)
    }

    /// Never called.
    pub fn replace(&self, _other: &Self) {
        match *self {}
    }

    pub(in crate::frontend::nbd) fn start(&self, _socket: Socket) -> io::Result<TlsStream> {
        match *self {}
    }

    pub(in crate::frontend::nbd) fn takes(&self, _saved: &SavedTls) -> bool {
        match *self {}
    }
}

/// Never there.
#[derive(Debug)]
pub(in crate::frontend::nbd) enum TlsStream {}

impl TlsStream {
    pub(in crate::frontend::nbd) fn receive(&mut self, _into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match *self {}
    }

    pub(in crate::frontend::nbd) fn send(&mut self, _from: &[IoSlice<'_>]) -> io::Result<usize> {
        match *self {}
    }

    pub(in crate::frontend::nbd) fn may_have_more(&self) -> bool {
        match *self {}
    }

    pub(in crate::frontend::nbd) fn holds_output(&self) -> bool {
        match *self {}
    }

    pub(in crate::frontend::nbd) fn flush(&mut self) -> io::Result<bool> {
        match *self {}
    }

    pub(in crate::frontend::nbd) fn is_handshaking(&self) -> bool {
        match *self {}
    }

    pub(in crate::frontend::nbd) fn socket(&self) -> &Socket {
        match *self {}
    }

    pub(in crate::frontend::nbd) fn socket_mut(&mut self) -> &mut Socket {
        match *self {}
    }

    pub(in crate::frontend::nbd) fn say_goodbye(&mut self) {
        match *self {}
    }

    pub(in crate::frontend::nbd) fn save(&self, _parcel: &mut Parcel) -> io::Result<SavedTls> {
        match *self {}
    }

    pub(in crate::frontend::nbd) fn take_up(_: Socket, saved: &SavedTls, _parcel: &Parcel) -> io::Result<Self> {
        match *saved {}
    }
}

/// Never there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::frontend::nbd) enum SavedTls {}
