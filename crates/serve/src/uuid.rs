// SPDX-License-Identifier: MIT OR Apache-2.0
//! UUIDs as people read them.

/// A UUID in its usual spelling.
#[must_use]
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex = |part: &[u8]| part.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    [&uuid[..4], &uuid[4..6], &uuid[6..8], &uuid[8..10], &uuid[10..]].map(hex).join("-")
}
