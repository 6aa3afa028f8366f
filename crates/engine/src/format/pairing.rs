// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache on two devices: what each says of the other, and which of them can be believed.
//!
//! Both have the same layout. The *lead* holds everything. The other member, the mirror, holds the
//! same but for the data of clean blocks. When a member fails, the other one's superblock says so
//! durably before anything more is acknowledged. So the newest superblock always knows which member
//! is complete.

use core::fmt;

use super::Superblock;

/// What a superblock says of the other device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mirror {
    /// There is none.
    #[default]
    None,
    /// Both members hold what is dirty.
    Whole,
    /// The other member failed or was left out: what it holds is old.
    Alone,
}

/// How a cache lies on its devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pairing {
    /// Which of the two this superblock is on: 0 or 1.
    pub member: u8,
    /// The member that holds everything.
    pub lead: u8,
    /// What is known of the other one.
    pub mirror: Mirror,
    /// Names this pairing: the number of the update that began it. A member of an older pairing is
    /// no member.
    pub paired: u64,
    /// The lead became it without the data of clean blocks: the next opening forgets all of them.
    pub clean_lost: bool,
}

impl Pairing {
    /// Whether the cache lies on one device, with all its clean data: there is no other member, or
    /// that one was left out.
    #[must_use]
    pub fn is_on_one(&self) -> bool {
        self.mirror != Mirror::Whole && !self.clean_lost
    }

    /// Whether this superblock is on that device.
    #[must_use]
    pub fn is_the_one(&self) -> bool {
        self.is_on_one() && self.member == self.lead
    }
}

/// Why the devices given can't be opened together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairingError {
    /// They are not members of one cache.
    Strangers,
    /// The newest of them belongs with another device than the one given, or no other was given.
    /// That device may hold newer data.
    MemberMissing,
    /// The one given was left out earlier: what it holds is old.
    LeftOut,
}

impl fmt::Display for PairingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Strangers => "the two devices do not belong to one cache",
            Self::MemberMissing => {
                "it is half of a mirrored cache, and the other half, which may hold newer data, is not there"
            }
            Self::LeftOut => "it was left out of its mirrored cache after a failure: what it holds is old",
        })
    }
}

impl core::error::Error for PairingError {}

/// Decides which superblock counts. `first` and `second` are what was found on the devices, in any
/// order. `alone` is the operator's word that the missing member will not come back.
///
/// The superblock that is returned tells by its [`Pairing::mirror`] whether both devices are to be
/// used, or only the one with its `member` number.
///
/// # Errors
/// See [`PairingError`].
pub fn choose(first: &Superblock, second: Option<&Superblock>, alone: bool) -> Result<Superblock, PairingError> {
    if second.is_some_and(|it| it.uuid != first.uuid || it.pairing.member == first.pairing.member) {
        return Err(PairingError::Strangers);
    }
    let (newest, other) = match second {
        Some(second) if second.update > first.update => (second, Some(first)),
        second => (first, second),
    };
    let pairing = newest.pairing;
    let mut chosen = newest.clone();
    if pairing.mirror != Mirror::Whole {
        return if pairing.member == pairing.lead { Ok(chosen) } else { Err(PairingError::LeftOut) };
    }
    if other.is_some_and(|it| it.pairing.paired == pairing.paired) {
        return Ok(chosen);
    }
    if !alone {
        return Err(PairingError::MemberMissing);
    }
    chosen.pairing.mirror = Mirror::Alone;
    chosen.pairing.clean_lost |= pairing.member != pairing.lead;
    chosen.pairing.lead = pairing.member;
    Ok(chosen)
}
