// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holds: snapshots that keep what a clone needs of its source. Each maker of a clone has one of
//! its own, with the number that the clone will have. So nobody takes back the hold of another.

use flashfront_object::Manifest;

use crate::error::Error;
use crate::place::Place;
use crate::session::Session;

/// Words between the snapshot's name and the clone's place.
const FOR: &str = " for the clone ";

/// The name of a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    /// The snapshot that is cloned.
    snapshot: String,
    /// Where the clone is, or should have been.
    to: String,
    /// The volume's number of the clone.
    clone: [u8; 16],
}

impl Hold {
    pub(crate) fn new(snapshot: &str, to: &Place, clone: [u8; 16]) -> Self {
        Self { snapshot: snapshot.to_owned(), to: to.to_string(), clone }
    }

    /// The name of the snapshot that it is.
    pub(crate) fn name(&self) -> String {
        let hex: String = self.clone.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}{FOR}{} {hex}", self.snapshot, self.to)
    }

    /// Reads a name. The snapshots of people have no spaces.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (snapshot, rest) = name.split_once(FOR)?;
        let (to, hex) = rest.rsplit_once(' ')?;
        let clone = u128::from_str_radix(hex, 16).ok().filter(|_| hex.len() == 32)?.to_be_bytes();
        Some(Self { snapshot: snapshot.to_owned(), to: to.to_owned(), clone })
    }

    /// Where the clone is, if it is there. `from` is the volume with the hold.
    fn place_of_clone(&self, from: &Place) -> Result<Option<&str>, Error> {
        let Some(to) = from.beside(&self.to) else { return Ok(None) };
        match Session::newest(&to) {
            Ok(there) => Ok((there.volume == self.clone).then_some(&self.to)),
            Err(Error::NoVolume { .. }) => Ok(None),
            Err(other) => Err(other),
        }
    }
}

/// The clone that needs this snapshot, if there is one.
pub(crate) fn clone_with(place: &Place, name: &str) -> Result<Option<String>, Error> {
    let Some(hold) = Hold::parse(name) else { return Ok(None) };
    Ok(hold.place_of_clone(place)?.map(str::to_owned))
}

/// The holds of clones that are not there. They were never finished, or are being made now, or were
/// deleted.
///
/// # Errors
/// [`Error`].
pub fn without_clone(place: &Place, manifest: &Manifest) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    for name in manifest.snapshots.iter().map(|it| &it.name) {
        if let Some(hold) = Hold::parse(name)
            && hold.place_of_clone(place)?.is_none()
        {
            found.push(name.clone());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::store::Memory;

    #[test]
    fn holds_are_read_as_they_are_written_and_snapshots_of_people_are_none() {
        let place = Place::in_store(Arc::new(Memory::default()), "copies/of two");
        for clone in [[0; 16], [0xff; 16]] {
            let hold = Hold::new("monday", &place, clone);
            assert_eq!(Hold::parse(&hold.name()), Some(hold));
        }
        for name in ["monday", "monday for the clone memory:copy", "a for the clone b 12"] {
            assert_eq!(Hold::parse(name), None, "{name}");
        }
    }
}
