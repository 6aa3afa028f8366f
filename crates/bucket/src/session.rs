// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume whose work is waited for: for commands. A store that refuses or is silent for a minute
//! is an error here.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use flashfront_object::{
    Answer, Content, Effect, Fault, Manifest, Mode, Opening, Options, Retired, SECTOR_BYTES, Snapshot, Ticket, Told,
    Trouble, Volume, WriteFault, Writer,
};

use crate::carrier::{Carrier, Wake};
use crate::error::Error;
use crate::keys::unlock;
use crate::place::Place;

/// A command waits so long for a store that does not answer.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Bytes of a read, and reads at a time.
const READ_BYTES: u64 = 4 << 20;
const READS: usize = 8;

/// A volume, and the threads that carry its objects.
#[derive(Debug)]
pub struct Session {
    place: Place,
    volume: Box<Volume>,
    carrier: Carrier,
    fx: Vec<Effect>,
    told: BTreeMap<Ticket, Result<Told, Trouble>>,
    tickets: Ticket,
    faults: Faults,
}

/// Since when nothing but faults has come.
#[derive(Debug, Default)]
struct Faults {
    since: Option<Instant>,
}

impl Faults {
    /// Judges an answer, or that there was none.
    fn judge(&mut self, place: &Place, name: &str, answer: &Result<Answer, Fault>) -> Result<(), Error> {
        let url = place.to_string();
        match answer {
            Err(Fault::Refused(what)) => Err(Error::Refused { url, what: format!("{name}: {what}") }),
            Err(Fault::Away(what)) => {
                let since = *self.since.get_or_insert_with(Instant::now);
                let seconds = since.elapsed().as_secs();
                match since.elapsed() > PATIENCE {
                    true => Err(Error::Away { url, seconds, what: what.clone() }),
                    false => Ok(()),
                }
            }
            _ => {
                self.since = None;
                Ok(())
            }
        }
    }
}

/// Starts the threads that carry a volume's requests.
fn carrier(place: &Place, wake: Option<Wake>) -> Result<Carrier, Error> {
    let failed = |error: std::io::Error| Error::Away { url: place.to_string(), seconds: 0, what: error.to_string() };
    Carrier::new(place, wake).map_err(failed)
}

impl Session {
    /// Opens a volume.
    ///
    /// # Errors
    /// [`Error`].
    pub fn open(place: &Place, mode: Mode, options: Options) -> Result<Self, Error> {
        Self::open_with(place, mode, options, None)
    }

    /// Opens a volume. `wake` is called when an answer of the store has come.
    ///
    /// # Errors
    /// [`Error`].
    pub fn open_with(place: &Place, mode: Mode, options: Options, wake: Option<Wake>) -> Result<Self, Error> {
        let (url, carrier) = (place.to_string(), carrier(place, wake)?);
        let (mut fx, mut faults) = (Vec::new(), Faults::default());
        let mut opening = Opening::new(mode, options, &mut fx);
        loop {
            fx.drain(..).for_each(|effect| carrier.start(effect));
            let Some(back) = carrier.wait(LOOK_EVERY) else { continue };
            faults.judge(place, &back.name, &back.answer)?;
            if let Some(opened) = opening.done(back.token, back.answer, &mut fx) {
                let mut volume = opened.map_err(|fault| Error::of_opening(&url, fault))?;
                unlock(&url, &mut volume)?;
                let (place, told) = (place.clone(), BTreeMap::new());
                return Ok(Self { place, volume, carrier, fx, told, tickets: 0, faults });
            }
        }
    }

    /// The newest manifest of a volume. Nothing else is fetched: that would take longer, and the
    /// volume's writer goes on meanwhile.
    ///
    /// # Errors
    /// [`Error`].
    pub fn newest(place: &Place) -> Result<Manifest, Error> {
        let (url, carrier) = (place.to_string(), carrier(place, None)?);
        let (mut fx, mut faults) = (Vec::new(), Faults::default());
        let mut opening = Opening::new(Mode::Read, Options::default(), &mut fx);
        loop {
            fx.drain(..).for_each(|effect| carrier.start(effect));
            let Some(back) = carrier.wait(LOOK_EVERY) else { continue };
            faults.judge(place, &back.name, &back.answer)?;
            if let Some(opened) = opening.done(back.token, back.answer, &mut fx) {
                let volume = opened.map_err(|fault| Error::of_opening(&url, fault))?;
                return Ok(volume.manifest().clone());
            }
            if let Some(manifest) = opening.manifest() {
                return Ok(manifest.clone());
            }
        }
    }

    /// The volume, as it is.
    #[must_use]
    pub const fn volume(&self) -> &Volume {
        &self.volume
    }

    /// What is to be said of damaged manifests that were passed over, if there are any.
    #[must_use]
    pub fn passed_over(&self) -> Option<String> {
        passed_over(&self.volume)
    }

    /// Refuses a volume of which the newest manifest is damaged.
    ///
    /// # Errors
    /// [`Error::PassedOver`].
    pub fn refuse_passed_over(&self) -> Result<(), Error> {
        let Some(what) = self.passed_over() else { return Ok(()) };
        let (url, passed) = (self.place.to_string(), self.volume.passed());
        Err(Error::PassedOver { url, what, counts: counts(&self.volume, passed) })
    }

    /// Ends without another word to the store.
    #[must_use]
    pub fn into_volume(self) -> Volume {
        *self.volume
    }

    /// Takes it apart. Nothing must be under way.
    #[must_use]
    pub fn into_parts(self) -> (Box<Volume>, Carrier) {
        (self.volume, self.carrier)
    }

    /// Where it is.
    #[must_use]
    pub const fn place(&self) -> &Place {
        &self.place
    }

    /// Bytes of the volume.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.volume.manifest().sectors * SECTOR_BYTES
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        self.tickets
    }

    /// Sends what is to be sent, and takes an answer if one comes in time.
    fn turn(&mut self, wait: Duration) -> Result<(), Error> {
        for effect in self.fx.drain(..) {
            match effect {
                Effect::Told { ticket, result } => _ = self.told.insert(ticket, result),
                effect => self.carrier.start(effect),
            }
        }
        if let Some(back) = self.carrier.wait(wait) {
            self.faults.judge(&self.place, &back.name, &back.answer)?;
            self.volume.done(back.token, back.answer, &mut self.fx);
        }
        Ok(())
    }

    fn wait_for(&mut self, ticket: Ticket) -> Result<Told, Error> {
        loop {
            if let Some(result) = self.told.remove(&ticket) {
                return result.map_err(|trouble| Error::of_trouble(&self.place.to_string(), trouble));
            }
            let told_now = self.fx.iter().any(|it| matches!(it, Effect::Told { .. }));
            self.turn(if told_now { Duration::ZERO } else { LOOK_EVERY })?;
        }
    }

    fn fault(&self, fault: WriteFault) -> Error {
        let url = self.place.to_string();
        match fault {
            WriteFault::Fenced(by) => Error::Fenced { url, by },
            WriteFault::ReadOnly => Error::Refused { url, what: "it was opened to be read".to_owned() },
            WriteFault::NoKey => Error::NoKey { url, key: self.volume.manifest().form.key.unwrap_or_default() },
        }
    }

    /// Writes whole sectors, as soon as there is room for them.
    ///
    /// # Errors
    /// [`Error`].
    pub fn write(&mut self, start: u64, bytes: &[u8]) -> Result<(), Error> {
        while !self.volume.has_room() {
            self.turn(LOOK_EVERY)?;
        }
        let written = self.volume.write(start, bytes, &mut self.fx);
        written.map_err(|fault| self.fault(fault))?;
        self.turn(Duration::ZERO)
    }

    /// Waits until all writes are in a manifest.
    ///
    /// # Errors
    /// [`Error`].
    pub fn flush(&mut self) -> Result<(), Error> {
        let ticket = self.ticket();
        self.volume.flush(ticket, &mut self.fx);
        self.wait_for(ticket).map(drop)
    }

    /// Reads ranges of sectors in their order, many by a request, and hands them out in parts.
    ///
    /// # Errors
    /// [`Error`], or what `take` says.
    pub fn read_all<E: From<Error>>(
        &mut self,
        ranges: &[(u64, u64)],
        mut take: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let part = READ_BYTES / SECTOR_BYTES;
        let parts = ranges.iter().flat_map(|(start, sectors)| {
            let end = start + sectors;
            (*start..end).step_by(part as usize).map(move |at| (at, part.min(end - at)))
        });
        let mut parts = parts.peekable();
        let mut under_way = VecDeque::new();
        loop {
            while under_way.len() < READS && parts.peek().is_some() {
                let (mut read, mut left) = (Vec::new(), part);
                while let Some((start, sectors)) = parts.next_if(|it| it.1 <= left) {
                    left -= sectors;
                    read.push((start, sectors));
                }
                let ticket = self.ticket();
                self.volume.read_ranges(ticket, read.clone(), &mut self.fx);
                under_way.push_back((ticket, read));
            }
            let Some((ticket, read)) = under_way.pop_front() else { return Ok(()) };
            if let Told::Read(bytes) = self.wait_for(ticket)? {
                let mut rest = &bytes[..];
                for (start, sectors) in read {
                    let (range, after) = rest.split_at((sectors * SECTOR_BYTES) as usize);
                    take(start, range)?;
                    rest = after;
                }
            }
        }
    }

    /// Reads all that is no zeroes, and hands it out in parts, in the order in which objects have
    /// it. The map of a part of the volume is in RAM at a time.
    ///
    /// # Errors
    /// [`Error`], or what `take` says.
    pub fn read_content<E: From<Error>>(&mut self, mut take: impl FnMut(u64, &[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut from = Some(0);
        while let Some(start) = from.take() {
            let ticket = self.ticket();
            self.volume.walk(ticket, start, &mut self.fx);
            if let Told::Content(Content { ranges, next }) = self.wait_for(ticket)? {
                self.read_all(&ranges, &mut take)?;
                from = next;
            }
        }
        Ok(())
    }

    /// Lets a volume that was opened to be read become a clone of itself at another place.
    ///
    /// # Errors
    /// [`Error`].
    pub(crate) fn become_clone(self, to: &Place, volume: [u8; 16], writer: Writer) -> Result<(), Error> {
        let source = self.place.prefix().into();
        let carrier = carrier(to, None)?;
        let mut clone = Self { place: to.clone(), carrier, ..self };
        let ticket = clone.ticket();
        clone.volume.become_clone(&source, volume, writer, ticket, &mut clone.fx);
        clone.wait_for(ticket).map(drop)
    }

    /// Moves what is live of objects with less than so many percent of it, until there are none.
    /// Tells how many bytes were moved, and the damage of the first object that had to stay.
    ///
    /// # Errors
    /// [`Error`].
    pub fn collect(&mut self, live_percent: u64, mut moved: impl FnMut(u64)) -> Result<(u64, Option<Error>), Error> {
        let (mut all, mut damage) = (0, None);
        loop {
            while !self.volume.has_room() {
                self.turn(LOOK_EVERY)?;
            }
            let ticket = self.ticket();
            self.volume.collect(ticket, live_percent, &mut self.fx);
            match self.wait_for(ticket) {
                Ok(Told::Collected(Some(bytes))) => {
                    all += bytes;
                    moved(all);
                }
                Ok(_) => return Ok((all, damage)),
                Err(error @ Error::Damaged { .. }) => _ = damage.get_or_insert(error),
                Err(other) => return Err(other),
            }
        }
    }

    /// Writes a checkpoint, and manifests until all that nothing needs was deleted.
    ///
    /// # Errors
    /// [`Error`].
    pub fn settle(&mut self, manifests: u64) -> Result<(), Error> {
        while !self.volume.has_room() {
            self.turn(LOOK_EVERY)?;
        }
        self.flush()?;
        self.volume.checkpoint_whole(&mut self.fx);
        self.flush()?;
        for _ in 0..=manifests {
            if !self.has_leaving() {
                break;
            }
            let ticket = self.ticket();
            self.volume.publish(ticket, &mut self.fx);
            self.wait_for(ticket)?;
            while self.volume.is_busy() {
                self.turn(LOOK_EVERY)?;
            }
        }
        Ok(())
    }

    /// Whether there are objects that can be deleted after some more manifests.
    fn has_leaving(&self) -> bool {
        let snapshots = &self.volume.manifest().snapshots;
        let is_kept = |it: &Retired| snapshots.iter().any(|kept| (it.entry.born..it.gone).contains(&kept.manifest));
        self.volume.retired().iter().any(|it| it.entry.source.is_none() && !is_kept(it))
    }

    /// Puts an older state in place of this one.
    ///
    /// # Errors
    /// [`Error`].
    pub fn roll_back(&mut self, older: Volume) -> Result<(), Error> {
        self.flush()?;
        let ticket = self.ticket();
        self.volume.roll_back(older, ticket, &mut self.fx);
        self.wait_for(ticket).map(drop)
    }

    /// Writes a last manifest, which says that no writer has the volume open.
    ///
    /// # Errors
    /// [`Error`].
    pub fn close(mut self) -> Result<(), Error> {
        let ticket = self.ticket();
        self.volume.close(ticket, &mut self.fx);
        self.wait_for(ticket).map(drop)
    }

    /// The snapshot of this name.
    ///
    /// # Errors
    /// [`Error::NoSnapshot`].
    pub fn snapshot(&self, name: &str) -> Result<&Snapshot, Error> {
        snapshot_of(&self.place, self.volume.manifest(), name)
    }
}

/// Says which manifests were passed over, as they are damaged, and which one counts.
#[must_use]
pub fn passed_over(volume: &Volume) -> Option<String> {
    let passed = volume.passed();
    if passed.is_empty() {
        return None;
    }
    let all: Vec<String> =
        passed.iter().map(|(number, what)| format!("manifest {number} is damaged ({what})")).collect();
    Some(format!("{}: the state of manifest {} counts", all.join(", "), counts(volume, passed)))
}

/// The manifest of the state that was opened. A writer's own first manifest repeats it.
fn counts(volume: &Volume, passed: &BTreeMap<u64, String>) -> u64 {
    let first = passed.first_key_value().map_or(u64::MAX, |(number, _)| number - 1);
    volume.manifest().number.min(first)
}

pub(crate) fn snapshot_of<'a>(place: &Place, manifest: &'a Manifest, name: &str) -> Result<&'a Snapshot, Error> {
    let all = &manifest.snapshots;
    let names: Vec<&str> = all.iter().map(|it| it.name.as_str()).collect();
    let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let none = || Error::NoSnapshot { url: place.to_string(), name: name.to_owned(), there };
    all.iter().find(|it| it.name == name).ok_or_else(none)
}
