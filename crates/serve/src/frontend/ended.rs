// SPDX-License-Identifier: MIT OR Apache-2.0
//! The place of a front-end that has ended.

use std::io;

use flashfront_engine::{RequestError, RequestId, Time};
use mio::{Registry, event::Event};

use super::{Core, Frontend, TokenRange};
use crate::upgrade::Parcel;

/// The place of a front-end that has ended.
#[derive(Debug)]
pub(crate) struct Ended;

impl Frontend for Ended {
    fn uri(&self) -> String {
        String::new()
    }

    fn tokens_max(&self) -> usize {
        0
    }

    fn register(&mut self, _registry: &Registry, _tokens: TokenRange) -> io::Result<()> {
        Ok(())
    }

    fn ready(&mut self, _event: &Event, _registry: &Registry, _core: &mut dyn Core) {}

    fn reply(&mut self, _id: RequestId, _result: Result<(), RequestError>, _core: &mut dyn Core) {}

    fn refused(&mut self, _id: RequestId, _core: &mut dyn Core) {}

    fn room(&mut self, _core: &mut dyn Core) {}

    fn turn_end(&mut self, _now: Time, _registry: &Registry, _core: &mut dyn Core) -> bool {
        false
    }

    fn next_timer(&self) -> Option<Time> {
        None
    }

    fn stop(&mut self, _registry: &Registry, _core: &mut dyn Core) {}

    fn idle(&self) -> bool {
        true
    }

    fn clients(&self) -> usize {
        0
    }

    // No client keeps an upgrade off here, and nothing is to be handed over.
    fn stays(&self) -> Option<String> {
        None
    }

    fn hand_over(&mut self, _parcel: &mut Parcel, _core: &mut dyn Core) -> io::Result<()> {
        Ok(())
    }
}
