// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why work on a volume in a store was not done.

use flashfront_object::{Name, OpenFault, Trouble};

/// Why work was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The URL names no place for a volume.
    #[error("{url} is no place for a volume: {what}; {todo}")]
    Url {
        /// What was written.
        url: String,
        /// What is wrong with it.
        what: String,
        /// What to do.
        todo: &'static str,
    },
    /// The store refuses a request.
    #[error("{url}: the store refuses a request ({what}); check the bucket's name, the credentials and their rights")]
    Refused {
        /// The volume.
        url: String,
        /// Its words.
        what: String,
    },
    /// The store does not answer.
    #[error("{url}: the store has not answered for {seconds} s ({what}); check the network and the store")]
    Away {
        /// The volume.
        url: String,
        /// How long.
        seconds: u64,
        /// The last fault.
        what: String,
    },
    /// There is no volume.
    #[error("{url}: there is no volume here; is the name right? `flashfront object create` makes one")]
    NoVolume {
        /// The place.
        url: String,
    },
    /// There is one already.
    #[error("{url}: there is a volume here already, and nothing was changed; name another place")]
    Exists {
        /// The place.
        url: String,
    },
    /// The place lies inside another volume.
    #[error("{url}: the volume {outer} is around this place, and nothing was changed; name a place beside it")]
    Inside {
        /// The place.
        url: String,
        /// The other volume.
        outer: String,
    },
    /// The place lies around another volume.
    #[error(
        "{url}: objects of the volume {inner} are below this place, and nothing was changed; name a place beside it, \
         or delete them"
    )]
    Around {
        /// The place.
        url: String,
        /// The other volume.
        inner: String,
    },
    /// An object is not what it should be.
    #[error("{url}: {what}; `flashfront object check {url} --data` says what else is damaged")]
    Damaged {
        /// The volume.
        url: String,
        /// The object.
        name: Option<Name>,
        /// Which object, and what is wrong.
        what: String,
    },
    /// The newest manifest is damaged, and work would destroy what only it names.
    #[error(
        "{url}: {what}; what only the damaged one names would be lost for good, so nothing was changed; restore that \
         object from a copy or an older version of it, or give up what came after manifest {counts} with --force"
    )]
    PassedOver {
        /// The volume.
        url: String,
        /// Which manifest is damaged, and how.
        what: String,
        /// The manifest that counts.
        counts: u64,
    },
    /// Another version of this program wrote the volume.
    #[error("{url}: {what}; use the version that wrote it, or a newer one")]
    Foreign {
        /// The volume.
        url: String,
        /// Which object, and what it has.
        what: String,
    },
    /// Somebody else writes the volume.
    #[error("{url}: another writer has opened the volume ({by}), so this one has stopped; nothing is written any more")]
    Fenced {
        /// The volume.
        url: String,
        /// The other writer.
        by: String,
    },
    /// Somebody else has opened the volume to write, after it was looked at.
    #[error(
        "{url}: another writer has opened the volume since it was looked at ({by}), and nothing was changed; try again"
    )]
    Overtaken {
        /// The volume.
        url: String,
        /// The other writer.
        by: String,
    },
    /// A snapshot is not there.
    #[error("{url}: there is no snapshot `{name}`; there are: {there}")]
    NoSnapshot {
        /// The volume.
        url: String,
        /// The name that was asked for.
        name: String,
        /// The names of those that are there.
        there: String,
    },
    /// A clone needs the snapshot.
    #[error("{url}: the clone {clone} needs `{name}`, and nothing was changed; delete the clone before")]
    Needed {
        /// The volume.
        url: String,
        /// The snapshot.
        name: String,
        /// The clone.
        clone: String,
    },
    /// A snapshot has this name already.
    #[error("{url}: there is a snapshot `{name}` already, and nothing was changed; choose another name")]
    SnapshotExists {
        /// The volume.
        url: String,
        /// Its name.
        name: String,
    },
    /// The store does not do what volumes need.
    #[error(
        "{url}: the store {why}, so two writers could destroy a volume here; use a store that can create \
         conditionally (If-None-Match: *), or make the volume with --single-writer, and see to it yourself that \
         no second host ever opens it"
    )]
    Unfit {
        /// The place.
        url: String,
        /// What the store does.
        why: String,
    },
    /// The volume's writer is too fast for the snapshot.
    #[error("{url}: the volume changed too fast for a snapshot {tries} times; try again")]
    TooFast {
        /// The volume.
        url: String,
        /// How often it was tried.
        tries: u32,
    },
    /// Keys can't be read.
    #[error(
        "cannot read the keys of encrypted volumes from {from}: {what}; write 64 hexadecimal digits in a line, the \
         newest key first"
    )]
    Keys {
        /// The file, or that it is a command.
        from: String,
        /// What is wrong. It never has a part of a key.
        what: String,
    },
    /// The volume is encrypted, and its key is not given.
    #[error(
        "{url}: the volume is encrypted with key {key:016x}, which is not given; name a file with it in \
         FLASHFRONT_OBJECT_KEYS"
    )]
    NoKey {
        /// The volume.
        url: String,
        /// The number of its newest key.
        key: u64,
    },
    /// Keys are given, and the volume is not encrypted.
    #[error(
        "{url}: keys are given, and the volume is not encrypted; if it should be, somebody has changed it, else unset \
         FLASHFRONT_OBJECT_KEYS and FLASHFRONT_OBJECT_KEYS_COMMAND"
    )]
    NotEncrypted {
        /// The volume.
        url: String,
    },
    /// Two volumes can't share objects.
    #[error("{from} and {to} are not in one bucket, and a clone shares objects; use `object export` and `import`")]
    Apart {
        /// The volume to be cloned.
        from: String,
        /// The clone.
        to: String,
    },
}

impl Error {
    pub(crate) fn of_opening(url: &str, fault: OpenFault) -> Self {
        let url = url.to_owned();
        match fault {
            OpenFault::NoVolume => Self::NoVolume { url },
            OpenFault::Overtaken(by) => Self::Overtaken { url, by },
            fault @ OpenFault::Foreign { .. } => Self::Foreign { url, what: fault.to_string() },
            OpenFault::Damaged { name, .. } => Self::Damaged { url, name: Some(name), what: fault.to_string() },
            fault => Self::Damaged { url, name: None, what: fault.to_string() },
        }
    }

    pub(crate) fn of_trouble(url: &str, trouble: Trouble) -> Self {
        let url = url.to_owned();
        match trouble {
            Trouble::Fenced(by) => Self::Fenced { url, by },
            Trouble::Damaged { name, .. } => Self::Damaged { url, name: Some(name), what: trouble.to_string() },
        }
    }
}
