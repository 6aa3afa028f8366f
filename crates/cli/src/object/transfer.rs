// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront object import` and `export`: between a volume and a file.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, bail};
use flashfront_bucket::{Place, Session};
use flashfront_object::{Mode, Options, SECTOR_BYTES, SIZE_MAX};

use super::{SIZE_UNIT, Stored, before_writing, take_over, warn_passed_over};
use crate::{human, progress};

/// Bytes that are read at a time. Zeroes of this length are not stored.
const PART_BYTES: usize = 256 << 10;

pub(super) fn import(path: &Path, place: &Place, stored: &Stored) -> anyhow::Result<()> {
    let reading = || format!("cannot read {}", path.display());
    let mut file = File::open(path).with_context(reading)?;
    let size = file.seek(SeekFrom::End(0)).with_context(reading)?;
    if size == 0 || size > SIZE_MAX || !size.is_multiple_of(SIZE_UNIT) {
        bail!(
            "{} has {size} bytes, and a volume has whole blocks of {SIZE_UNIT} bytes, at most 1 PiB; \
             extend the file (truncate -s %{SIZE_UNIT} FILE)",
            path.display()
        );
    }
    file.rewind().with_context(reading)?;
    flashfront_bucket::create(place, size / SECTOR_BYTES, stored.form()?, stored.single_writer)?;
    let mut session = take_over(before_writing(place, false)?, Options::default())?;
    let bar = progress::of_bytes("importing");
    let mut part = vec![0; PART_BYTES];
    let (mut at, mut stored) = (0, 0);
    while at < size {
        let len = (size - at).min(PART_BYTES as u64) as usize;
        file.read_exact(&mut part[..len]).with_context(reading)?;
        if part[..len].iter().any(|it| *it != 0) {
            session.write(at / SECTOR_BYTES, &part[..len])?;
            stored += len as u64;
        }
        at += len as u64;
        progress::show(&bar, at, size);
    }
    session.close()?;
    bar.finish_and_clear();
    let (size, stored) = (human::bytes(size), human::bytes(stored));
    human::tell(&format!("imported    {} as {place}: {size}, of which {stored} are stored\n", path.display()))
}

pub(super) fn export(place: &Place, snapshot: Option<&str>, path: &Path) -> anyhow::Result<()> {
    let mode = match snapshot {
        None => Mode::Read,
        Some(name) => flashfront_bucket::read_snapshot(place, name)?,
    };
    let mut session = Session::open(place, mode, Options::default())?;
    warn_passed_over(&session);
    let writing = || format!("cannot write {}", path.display());
    let file = OpenOptions::new().write(true).create_new(true).open(path).with_context(writing)?;
    file.set_len(session.size_bytes()).with_context(writing)?;
    let about = session.volume().usage().content_bytes;
    let bar = progress::of_bytes("exporting");
    let mut done = 0;
    let exported = session.read_content(|start, bytes| -> anyhow::Result<()> {
        file.write_all_at(bytes, start * SECTOR_BYTES).with_context(writing)?;
        done += bytes.len() as u64;
        progress::show(&bar, done, about.max(done));
        Ok(())
    });
    bar.finish_and_clear();
    if exported.is_err() {
        // Half of a volume would look like a whole one.
        let _ = std::fs::remove_file(path);
    }
    exported?;
    file.sync_all().with_context(writing)?;
    let (size, all) = (human::bytes(session.size_bytes()), human::bytes(done));
    let of = snapshot.map_or_else(|| place.to_string(), |name| format!("{place}@{name}"));
    human::tell(&format!("exported    {of} as {}: {size}, of which {all} are not zeroes\n", path.display()))
}
