// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront object`: volumes in an object store, beside a daemon.

mod look;
mod transfer;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use flashfront_bucket::{Error, Place, Session, split_snapshot};
use flashfront_object::{Form, Mode, Options, SECTOR_BYTES, SIZE_MAX};
use flashfront_units::Size;

use crate::usage::misused;
use crate::{human, progress};

/// Objects with less than so much of them in use are written anew.
const LIVE_PERCENT: u64 = 50;
/// The index of every cache has room for so much.
const SERVED_MAX: u64 = 256 << 40;
/// What a volume's size must be a multiple of.
const SIZE_UNIT: u64 = 4096;

/// Make, copy, check and keep volumes in an object store.
///
/// A URL is s3://BUCKET/NAME or file:///FOLDER. Credentials come from the environment (AWS_...) or
/// from the machine's role, never from the command line.
#[derive(Debug, Args)]
pub(crate) struct Object {
    #[command(subcommand)]
    verb: Verb,
}

/// How a volume stores what is written to it.
#[derive(Debug, Args)]
struct Stored {
    /// Compress what is stored, where that saves space.
    #[arg(long)]
    compress: bool,
    /// Encrypt what is stored. FLASHFRONT_OBJECT_KEYS names the file with the key.
    #[arg(long)]
    encrypt: bool,
    /// Use a store that can't keep a second writer out (no If-None-Match). You see to it that no
    /// second host ever opens the volume: two writers would destroy it.
    #[arg(long)]
    single_writer: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make an empty volume. It takes space as it is written.
    Create {
        /// Where.
        url: String,
        /// Its size, at most 1 PiB. Only 256 TiB, of all volumes together, fit each cache.
        #[arg(long)]
        size: Size,
        #[command(flatten)]
        form: Stored,
    },
    /// Tell what a volume is, and how much it holds.
    Info {
        /// The volume.
        url: String,
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Make a volume with the content of a file or a block device.
    Import {
        /// The file or block device.
        file: PathBuf,
        /// Where.
        url: String,
        #[command(flatten)]
        form: Stored,
    },
    /// Write the content of a volume into a new file. Zeroes are left as holes.
    Export {
        /// The volume: URL, or URL@SNAPSHOT.
        url: String,
        /// The file. It must not be there.
        file: PathBuf,
    },
    /// Keep the state that the store holds now under a name. A daemon may serve the volume.
    Snapshot {
        /// The volume.
        url: String,
        /// The name.
        name: String,
        /// Forget the snapshot instead.
        #[arg(long)]
        forget: bool,
    },
    /// Make a volume that begins as a snapshot and shares its objects.
    Clone {
        /// The snapshot: URL@SNAPSHOT.
        from: String,
        /// Where, in the same bucket.
        to: String,
    },
    /// Let a volume be again what it was at a snapshot. What came later is lost, but for snapshots.
    Rollback {
        /// The volume.
        url: String,
        /// The snapshot.
        name: String,
        /// Take the volume over from a writer that has it open. Give up what only a damaged newest
        /// manifest names.
        #[arg(long)]
        force: bool,
    },
    /// Look whether all objects are there and are what they should be. Changes nothing.
    ///
    /// Exit code 0: sound. 1: damaged, or it could not be checked.
    Check {
        /// The volume.
        url: String,
        /// Read every byte. Else heads and sizes are looked at.
        #[arg(long)]
        data: bool,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Move what is left of worn objects together, and delete what nothing needs.
    Gc {
        /// The volume.
        url: String,
        /// Take the volume over from a writer that has it open. Give up what only a damaged newest
        /// manifest names.
        #[arg(long)]
        force: bool,
    },
}

impl Object {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(open) = flashfront_bucket::keys_are_open() {
            eprintln!("flashfront: {open}");
        }
        match self.verb {
            Verb::Create { url, size, form } => create(&place(&url)?, size, &form)?,
            Verb::Info { url, json } => look::info(&place(&url)?, json)?,
            Verb::Import { file, url, form } => transfer::import(&file, &place(&url)?, &form)?,
            Verb::Export { url, file } => {
                let (url, snapshot) = split_snapshot(&url);
                transfer::export(&place(url)?, snapshot, &file)?;
            }
            Verb::Snapshot { url, name, forget } => snapshot(&place(&url)?, &name, forget)?,
            Verb::Clone { from, to } => {
                let (url, Some(name)) = split_snapshot(&from) else {
                    misused!("{from}: name the snapshot, too: URL@SNAPSHOT");
                };
                let to = place(&to)?;
                flashfront_bucket::clone(&place(url)?, name, &to)?;
                human::tell(&format!("cloned      {from} as {to}\n"))?;
            }
            Verb::Rollback { url, name, force } => roll_back(&place(&url)?, &name, force)?,
            Verb::Check { url, data, json } => return look::check(&place(&url)?, data, json),
            Verb::Gc { url, force } => collect(&place(&url)?, force)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Stored {
    fn form(&self) -> anyhow::Result<Form> {
        let key = match (self.encrypt, flashfront_bucket::keys()?) {
            (false, None) => None,
            (true, Some(keys)) => keys.first(),
            (true, None) => misused!("--encrypt: no key is given; name a file with it in FLASHFRONT_OBJECT_KEYS"),
            (false, Some(_)) => misused!(
                "keys are given, and the volume would not be encrypted; add --encrypt, or unset \
                 FLASHFRONT_OBJECT_KEYS and FLASHFRONT_OBJECT_KEYS_COMMAND"
            ),
        };
        Ok(Form { compressed: self.compress, key })
    }
}

/// The place that a URL names. A wrong one is wrong usage.
fn place(url: &str) -> anyhow::Result<Place> {
    if let (volume, Some(name)) = split_snapshot(url) {
        misused!("{url}: this is about whole volumes; write {volume}, without the snapshot `{name}`");
    }
    match Place::of(url) {
        Err(error @ Error::Url { .. }) => misused!("{error}"),
        place => Ok(place?),
    }
}

fn create(place: &Place, size: Size, stored: &Stored) -> anyhow::Result<()> {
    if size.0 == 0 || size.0 > SIZE_MAX || !size.0.is_multiple_of(SIZE_UNIT) {
        misused!("--size {size}: a volume has at most 1 PiB, in whole blocks of 4 KiB; choose such a size");
    }
    flashfront_bucket::create(place, size.0 / SECTOR_BYTES, stored.form()?, stored.single_writer)?;
    human::tell(&format!("created     {place}, {}\n", size.told()))?;
    if size.0 > SERVED_MAX {
        human::tell(
            "note        no cache is sure to serve more than 256 TiB: `serve` may refuse it; `export` reads it\n",
        )?;
    }
    Ok(())
}

fn snapshot(place: &Place, name: &str, forget: bool) -> anyhow::Result<()> {
    if forget {
        flashfront_bucket::forget(place, name)?;
        return human::tell(&format!("forgotten   {place}@{name}; its space is free after the next `object gc`\n"));
    }
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "._-:".contains(it);
    if name.is_empty() || name.len() > 100 || !name.chars().all(is_plain) {
        misused!("`{name}` is no name of a snapshot; use letters, digits and . _ - : and at most 100 of them");
    }
    let manifest = flashfront_bucket::snapshot(place, name)?;
    human::tell(&format!("kept        {place}@{name}, the state of manifest {manifest}\n"))
}

/// The volume as it is, unless a writer has it. What can be refused is refused by what this tells,
/// before [`take_over`] fences anybody.
fn before_writing(place: &Place, force: bool) -> anyhow::Result<Session> {
    // Whoever has not got its key fences nobody.
    let session = Session::open(place, Mode::Read, Options::default())?;
    match force {
        true => warn_passed_over(&session),
        false => session.refuse_passed_over()?,
    }
    let manifest = session.volume().manifest();
    let (who, epoch) = (flashfront_bucket::who(&manifest.host, manifest.holder.as_ref()), manifest.epoch);
    if manifest.is_open && !force {
        anyhow::bail!(
            "{place}: {who} has the volume open to write (epoch {epoch}); stop the daemon there, or take the volume \
             over with --force: its unsent writes are lost then"
        );
    }
    if manifest.owes && !force {
        anyhow::bail!(
            "{place}: {who} holds writes that the store lacks (epoch {epoch}, closed); start the daemon of that cache \
             and drain it, or give them up with --force"
        );
    }
    Ok(session)
}

/// Says that the newest manifest is damaged, and which state counts.
fn warn_passed_over(session: &Session) {
    if let Some(what) = session.passed_over() {
        eprintln!("flashfront: {}: {what}", session.place());
    }
}

/// Opens a volume to write. From then on its last writer is fenced.
fn take_over(before: Session, options: Options) -> anyhow::Result<Session> {
    let manifest = before.volume().manifest();
    let place = flashfront_bucket::to_write(before.place(), manifest.single_writer)?;
    let writer = flashfront_bucket::this_writer(None, Some(manifest.epoch));
    drop(before);
    Ok(Session::open(&place, Mode::Write(writer), options)?)
}

/// Works on a volume that was taken over, and closes it also if the work fails.
fn closing<T>(
    mut session: Session,
    work: impl FnOnce(&mut Session) -> Result<T, flashfront_bucket::Error>,
) -> anyhow::Result<T> {
    let worked = work(&mut session);
    let closed = session.close();
    let worked = worked?;
    closed?;
    Ok(worked)
}

/// Deletes as soon as it may.
fn without_complete() -> Options {
    Options { complete: 0, ..Options::default() }
}

fn roll_back(place: &Place, name: &str, force: bool) -> anyhow::Result<()> {
    let before = before_writing(place, force)?;
    let manifest = before.snapshot(name)?.manifest;
    // A snapshot that is damaged is refused here.
    let older = Session::open(place, Mode::ReadAt(manifest), Options::default())?.into_volume();
    closing(take_over(before, without_complete())?, |session| {
        // Somebody may have forgotten it meanwhile.
        session.snapshot(name)?;
        session.roll_back(older)
    })?;
    human::tell(&format!("rolled back {place} to {name}\n"))
}

fn collect(place: &Place, force: bool) -> anyhow::Result<()> {
    let bar = progress::of_bytes("moving");
    let session = take_over(before_writing(place, force)?, without_complete())?;
    let before = session.volume().usage();
    let ((moved, damage), leftovers, after, holds) = closing(session, |session| {
        let moved = session.collect(LIVE_PERCENT, |moved| progress::show(&bar, moved, before.live_bytes.max(moved)))?;
        session.settle(Options::default().complete)?;
        let leftovers = flashfront_bucket::sweep_leftovers(session)?;
        let holds = flashfront_bucket::without_clone(place, session.volume().manifest())?;
        Ok((moved, leftovers, session.volume().usage(), holds))
    })?;
    bar.finish_and_clear();
    let unclaimed = unclaimed(place, &holds);
    let freed = human::bytes(before.dead_bytes.saturating_sub(after.dead_bytes));
    let (moved, leftovers) = (human::bytes(moved), human::counted(leftovers, "leftover object"));
    human::tell(&format!("collected   {place}: {moved} moved, {freed} freed, {leftovers} deleted\n{unclaimed}"))?;
    damage.map_or(Ok(()), |damage| Err(damage.into()))
}

/// Lines about the holds of clones that are not there.
fn unclaimed(place: &Place, holds: &[String]) -> String {
    let line = |name: &String| {
        format!(
            "unclaimed   `{name}`: there is no such clone; if none is being made, and no clone of it is left, free its \
             space with `flashfront object snapshot {place} '{name}' --forget`\n"
        )
    };
    holds.iter().map(line).collect()
}
