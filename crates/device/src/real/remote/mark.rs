// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tells the content of a volume in an object store from all that it ever was.

/// The content of a volume in an object store, without a look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The volume's random number.
    pub volume: [u8; 16],
    /// The opening that made the newest object. Each opening to write has its own number.
    pub epoch: u32,
    /// The number of the newest object.
    pub sequence: u64,
    /// The number of this process's opening, once it has taken the volume over to write.
    pub opening: Option<u32>,
}
