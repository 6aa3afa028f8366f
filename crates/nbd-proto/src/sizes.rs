// SPDX-License-Identifier: MIT OR Apache-2.0
//! Block size constraints: what requests are aligned to, and how long their payload may be.

/// The constraints of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BlockSizes {
    /// Offsets and lengths are multiples of this.
    pub minimum: u32,
    /// Offsets and lengths had better be multiples of this.
    pub preferred: u32,
    /// The longest payload of a read or write.
    pub maximum: u32,
}

impl BlockSizes {
    /// The sizes that a client keeps to if the server has told none.
    pub const UNTOLD: Self = Self { minimum: 512, preferred: 4096, maximum: 32 << 20 };

    /// Whether the protocol allows these.
    #[must_use]
    pub const fn are_sound(&self) -> bool {
        let Self { minimum, preferred, maximum } = *self;
        minimum.is_power_of_two()
            && minimum <= 1 << 16
            && preferred.is_power_of_two()
            && preferred >= minimum
            && maximum >= minimum
            && (maximum == u32::MAX || maximum.is_multiple_of(minimum))
    }

    /// Whether a range begins and ends where it may.
    #[must_use]
    pub const fn are_kept_by(&self, offset: u64, len: u64) -> bool {
        (offset | len) & (self.minimum as u64 - 1) == 0
    }
}
