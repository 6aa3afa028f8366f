// SPDX-License-Identifier: MIT OR Apache-2.0
//! The writer that has a volume in an object store open. Who may go on in its place without being
//! told to is decided here (ADR 0077).

use flashfront_bucket::{is_own, this_holder, this_host, who};
use flashfront_object::{Holder, Manifest};

/// A writer that holds a volume in an object store. The volume is open, or the writer has died with
/// it open. Or the writer has closed it, and owes it what its cache holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenBy {
    /// Names it for people.
    pub who: String,
    /// The number of its opening.
    pub epoch: u32,
    /// The volume was closed, and the writer's cache holds what the store lacks.
    pub owes: bool,
    host: String,
    /// `None`: an older version of this program wrote it, and did not say.
    holder: Option<Holder>,
    /// This process has opened the volume, in an earlier life.
    is_own: bool,
}

impl OpenBy {
    /// The writer that holds a volume, if one does.
    pub(crate) fn of(manifest: &Manifest) -> Option<Self> {
        let Manifest { host, epoch, holder, owes, .. } = manifest;
        (manifest.is_open || *owes).then(|| Self {
            who: who(host, holder.as_ref()),
            epoch: *epoch,
            owes: *owes,
            host: host.clone(),
            holder: *holder,
            is_own: is_own(&manifest.writer),
        })
    }

    /// Whether a daemon of this machine with this cache is the writer, which was stopped or killed.
    /// `recorded` is the opening that the cache knows as its own.
    #[must_use]
    pub fn is_of(&self, cache: Option<[u8; 16]>, recorded: u64) -> bool {
        self.is_own || self.is_of_one(&this_host(), &this_holder(cache), recorded)
    }

    fn is_of_one(&self, host: &str, here: &Holder, recorded: u64) -> bool {
        let looks_alike = u64::from(self.epoch) == recorded || self.host == host;
        let Some(holder) = self.holder else { return looks_alike };
        if here.cache().is_none() || holder.cache != here.cache {
            return false;
        }
        match (holder.machine(), here.machine()) {
            // What is owed is in the cache, wherever that is now.
            _ if self.owes => true,
            (Some(then), Some(now)) => then == now,
            (None, None) => looks_alike,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: &str = "0123456789abcdef0123456789abcdef";
    const OTHER: &str = "1123456789abcdef0123456789abcdef";

    fn open_by(holder: Option<Holder>, owes: bool) -> OpenBy {
        let mut manifest = Manifest::first([1; 16], [2; 16], 8, 0, "one");
        (manifest.is_open, manifest.owes, manifest.epoch, manifest.holder) = (!owes, owes, 7, holder);
        OpenBy::of(&manifest).unwrap()
    }

    #[test]
    fn a_closed_volume_is_held_by_nobody() {
        assert_eq!(OpenBy::of(&Manifest::first([1; 16], [2; 16], 8, 0, "one")), None);
    }

    #[test]
    fn only_the_same_cache_on_the_same_machine_goes_on() {
        let cache = Some([5; 16]);
        let open = open_by(Some(Holder::new(MACHINE, cache)), false);
        assert!(open.is_of_one("renamed", &Holder::new(MACHINE, cache), 0));
        for (machine, cache) in [(OTHER, cache), (MACHINE, Some([6; 16])), (MACHINE, None), ("", cache)] {
            assert!(!open.is_of_one("one", &Holder::new(machine, cache), 7), "{machine} {cache:?}");
        }
        // Nothing tells two daemons without caches apart.
        let bare = open_by(Some(Holder::new(MACHINE, None)), false);
        assert!(!bare.is_of_one("one", &Holder::new(MACHINE, None), 7));
    }

    #[test]
    fn what_a_cache_owes_may_be_brought_from_any_machine() {
        let owed = open_by(Some(Holder::new(MACHINE, Some([5; 16]))), true);
        assert!(owed.is_of_one("other", &Holder::new(OTHER, Some([5; 16])), 0));
        assert!(!owed.is_of_one("one", &Holder::new(MACHINE, Some([6; 16])), 7));
    }

    #[test]
    fn without_an_identity_the_name_of_the_host_must_do() {
        let unknown = open_by(Some(Holder::new("", Some([5; 16]))), false);
        let here = Holder::new("", Some([5; 16]));
        assert!(unknown.is_of_one("one", &here, 0) && unknown.is_of_one("other", &here, 7));
        assert!(!unknown.is_of_one("other", &here, 0) && !unknown.is_of_one("one", &Holder::new("", Some([6; 16])), 7));
        let old = open_by(None, false);
        assert!(
            old.is_of_one("one", &here, 0) && old.is_of_one("other", &here, 7) && !old.is_of_one("other", &here, 0)
        );
    }
}
