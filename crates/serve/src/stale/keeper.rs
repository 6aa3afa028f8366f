// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps the record of an origin's samples, in a thread of its own.
//!
//! The thread begins the record, and writes it as often as it is told to. It knows nothing of I/O
//! that waits for the record. What becomes durable is told by [`News`].

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender};

use flashfront_device::real::watched;
use flashfront_engine::OriginId;

use super::openings;
use super::record::{self, Owner, RecordFile, Sample};
use super::samples::Samples;
use super::sampling::sample;
use super::watched::Watch;

/// What the thread that writes records tells.
pub(super) enum News {
    /// The first record is durable.
    Begun(Samples),
    /// A record is durable.
    Saved,
    /// No record is kept any more.
    Over,
}

/// Makes samples a record, durably.
pub(super) fn create(
    state: Option<&Path>,
    id: OriginId,
    owner: Owner,
    mut samples: Samples,
) -> io::Result<(Samples, RecordFile)> {
    let (first, bytes) = (samples.save(), samples.record_bytes_max());
    let file = RecordFile::create(state, id, owner, &first, bytes)?;
    samples.saved();
    Ok((samples, file))
}

/// What the thread that writes records has to know.
pub(super) struct Keeper {
    pub(super) watch: Watch,
    pub(super) name: String,
    pub(super) wake: Box<dyn Fn() + Send>,
}

impl Keeper {
    /// Begins the record, and writes it as often as it is told to.
    pub(super) fn keep(self, records: Receiver<Vec<Sample>>, news: &Sender<News>) {
        let Self { watch: Watch { state, origin, id, owner, limit, begun }, name, wake } = self;
        let tell = |it| {
            // A daemon that has ended meanwhile doesn't need it.
            let _ = news.send(it);
            wake();
        };
        let give_up = |error: &io::Error| {
            give_up(&name, state.as_deref(), id, &owner.uuid, error);
            tell(News::Over);
        };
        let begin = || {
            // A thread that a silent device leaves behind must not write a record later.
            let samples = watched(move |_| limit, move || sample(&origin))??;
            create(state.as_deref(), id, owner, samples)
        };
        let mut file = match begun.map_or_else(begin, Ok) {
            Err(error) => return give_up(&error),
            Ok((samples, file)) => {
                tell(News::Begun(samples));
                file
            }
        };
        for record in records {
            match file.save(&record) {
                Err(error) => return give_up(&error),
                Ok(()) => tell(News::Saved),
            }
        }
    }
}

/// Lets no later start believe that the origin was not written, or what the record says of it.
pub(super) fn give_up(name: &str, state: Option<&Path>, id: OriginId, uuid: &[u8; 16], error: &io::Error) {
    let removed = state.map_or(Ok(()), |state| openings::forget(state, uuid).and(record::remove(state, uuid, id)));
    tracing::warn!(
        "{name}: can't record samples of it in the state folder ({error}); after a crash only what the cache has of it will be compared"
    );
    if let Err(error) = removed {
        tracing::error!(
            "{name}: nor can the record be removed ({error}); after a crash the next start may take this origin for changed: remove *.samples and *.openings from the state folder first"
        );
    }
}
