// SPDX-License-Identifier: MIT OR Apache-2.0
//! The volumes as the protocol offers them to clients.

use flashfront_nbd_proto::wire::export_flag;
use flashfront_nbd_proto::{BlockSizes, server};

use super::limits::PAYLOAD_BYTES_MAX;
use crate::frontend::Export;

/// Tells the protocol of each volume.
pub(super) fn offered(exports: &[Export]) -> Vec<server::Export> {
    exports.iter().map(offer).collect()
}

fn offer(export: &Export) -> server::Export {
    let how = if export.read_only { ", read-only" } else { "" };
    // Several connections are fine: a FLUSH of the engine covers every acknowledged write,
    // whichever client made it.
    let flags = export_flag::SEND_FLUSH
        | export_flag::SEND_FUA
        | export_flag::SEND_TRIM
        | export_flag::SEND_WRITE_ZEROES
        | export_flag::CAN_MULTI_CONN
        | export_flag::SEND_CACHE
        | export_flag::SEND_FAST_ZERO;
    server::Export {
        name: export.name.clone(),
        description: format!("a volume of {} bytes behind a Flashfront cache{how}", export.size_bytes),
        size_bytes: export.size_bytes,
        flags: if export.read_only { flags | export_flag::READ_ONLY } else { flags },
        sizes: BlockSizes { minimum: 1, preferred: 4096, maximum: PAYLOAD_BYTES_MAX },
    }
}
