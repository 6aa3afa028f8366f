// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests for what is to be in the cache: of clients, and for nobody.

use crate::act::request::split;
use crate::coordinator::Coordinator;
use crate::cx::Cx;
use crate::fact::types::Mode;
use crate::lanes::Lanes;
use crate::organ::active::Range;
use crate::organ::piece::{PieceKind, Warm};

/// As a read, but of no stream: what a client asks for by this is to be in the cache, however
/// much it is.
pub(crate) fn prefetch(
    coordinator: &mut Coordinator,
    request: usize,
    range: Range,
    lanes: &mut Lanes,
    cx: &mut Cx<'_>,
) {
    let bypass = cx.facts.origins[range.origin].mode == Mode::Passthrough;
    split(coordinator, request, range, PieceKind::Read, false, bypass, lanes, cx);
}

/// Brings what is missing of a range.
pub(crate) fn warm(
    coordinator: &mut Coordinator,
    request: usize,
    range: Range,
    replace: bool,
    lanes: &mut Lanes,
    cx: &mut Cx<'_>,
) {
    let warm = Some(if replace { Warm::Replacing } else { Warm::IntoFreeRoom });
    prefetch(coordinator, request, Range { warm, ..range }, lanes, cx);
}
