// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront object info` and `check`: what a volume is, and whether it is sound.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::ExitCode;

use flashfront_bucket::{Place, Session};
use flashfront_object::{Mode, Options, SECTOR_BYTES};
use serde::Serialize;

use crate::{human, progress};

#[derive(Serialize)]
struct Info {
    url: String,
    size_bytes: u64,
    live_bytes: u64,
    dead_bytes: u64,
    objects: u64,
    manifest: u64,
    epoch: u32,
    open: bool,
    /// The last writer's cache holds writes that the store lacks.
    owed: bool,
    /// The cache of the last writer; none: it had none, or did not say.
    cache: Option<String>,
    /// Nothing keeps a second writer out.
    single_writer: bool,
    compressed: bool,
    /// The number of the key; none: it is not encrypted.
    key: Option<String>,
    host: String,
    written_s: u64,
    snapshots: Vec<Kept>,
    /// Damaged manifests above the one that counts.
    passed_over: Option<String>,
}

#[derive(Serialize)]
struct Kept {
    name: String,
    manifest: u64,
}

#[derive(Serialize)]
struct Checked {
    ok: bool,
    objects: u64,
    /// None: the volume can't be opened.
    live_bytes: Option<u64>,
    dead_bytes: u64,
    /// Manifests, wishes, heads, and what is left over.
    other_bytes: u64,
    snapshots: Vec<String>,
    /// Names of snapshots that clones hold which are not there.
    unclaimed: Vec<String>,
    damage: Vec<Harm>,
}

#[derive(Serialize)]
struct Harm {
    object: String,
    what: String,
    snapshot: Option<String>,
}

pub(super) fn info(place: &Place, json: bool) -> anyhow::Result<()> {
    let session = Session::open(place, Mode::Read, Options::default())?;
    let (volume, passed_over) = (session.volume(), session.passed_over());
    let (manifest, usage) = (volume.manifest(), volume.usage());
    let kept = |it: &flashfront_object::Snapshot| Kept { name: it.name.clone(), manifest: it.manifest };
    let info = Info {
        url: place.to_string(),
        size_bytes: manifest.sectors * SECTOR_BYTES,
        live_bytes: usage.live_bytes,
        dead_bytes: usage.dead_bytes,
        objects: usage.objects,
        manifest: manifest.number,
        epoch: manifest.epoch,
        open: manifest.is_open,
        owed: manifest.owes,
        cache: manifest.holder.and_then(|it| it.cache()).map(|cache| flashfront_bucket::uuid_text(&cache)),
        single_writer: manifest.single_writer,
        compressed: manifest.form.compressed,
        key: manifest.form.key.map(|key| format!("{key:016x}")),
        host: manifest.host.clone(),
        written_s: manifest.written,
        snapshots: manifest.snapshots.iter().map(kept).collect(),
        passed_over,
    };
    if json {
        return human::print_json(&info);
    }
    let mut out = String::new();
    writeln!(out, "volume      {place}, {}", human::bytes(info.size_bytes))?;
    writeln!(
        out,
        "holds       {} in {}; {} not in use any more",
        human::bytes(info.live_bytes),
        human::counted(info.objects, "object"),
        human::bytes(info.dead_bytes)
    )?;
    let (who, epoch) = (flashfront_bucket::who(&info.host, manifest.holder.as_ref()), info.epoch);
    match (info.open, info.owed) {
        (true, _) => writeln!(out, "writer      {who} has it open (epoch {epoch})")?,
        (false, true) => writeln!(out, "writer      none; {who} holds writes that the store lacks (epoch {epoch})")?,
        (false, false) => writeln!(out, "writer      none; the last one was on {} (epoch {epoch})", info.host)?,
    }
    if let Some(what) = &info.passed_over {
        writeln!(out, "DAMAGED     {what}")?;
    }
    if info.single_writer {
        writeln!(out, "unfenced    the store keeps no second writer out: see to it that there is none")?;
    }
    if info.compressed {
        writeln!(out, "compressed  where that saves space")?;
    }
    if let Some(key) = &info.key {
        writeln!(out, "encrypted   with key {key}")?;
    }
    for it in &info.snapshots {
        writeln!(out, "snapshot    {} (manifest {})", it.name, it.manifest)?;
    }
    human::tell(&out)
}

pub(super) fn check(place: &Place, data: bool, json: bool) -> anyhow::Result<ExitCode> {
    let bar = progress::of_share("checking", 0);
    let survey = flashfront_bucket::survey(place, data, |done, all| progress::show(&bar, done, all));
    bar.finish_and_clear();
    let survey = survey?;
    let ok = survey.damage.is_empty();
    if json {
        let harm = survey.damage.into_iter();
        let damage = harm.map(|it| Harm { object: it.name, what: it.what, snapshot: it.snapshot }).collect();
        let (objects, snapshots, unclaimed) = (survey.objects, survey.snapshots, survey.unclaimed);
        let (live_bytes, dead_bytes, other_bytes) = (survey.live_bytes, survey.dead_bytes, survey.other_bytes);
        let checked = Checked { ok, objects, live_bytes, dead_bytes, other_bytes, snapshots, unclaimed, damage };
        human::read_or_not(human::print_json(&checked))?;
    } else {
        let mut out = String::new();
        for it in &survey.damage {
            let state = it.snapshot.as_ref().map_or_else(|| "the volume".to_owned(), |name| format!("snapshot {name}"));
            writeln!(out, "DAMAGED     {}: {}; {state} needs it", it.name, it.what)?;
        }
        out += &super::unclaimed(place, &survey.unclaimed);
        let (objects, rest) = (human::counted(survey.objects, "object"), human::bytes(survey.dead_bytes));
        let snapshots = human::counted(survey.snapshots.len() as u64, "snapshot");
        match survey.live_bytes.map(human::bytes) {
            Some(live) => {
                let other = human::bytes(survey.other_bytes);
                writeln!(
                    out,
                    "holds       {live} in use, {rest} not any more, {other} beside, in {objects}; {snapshots}"
                )?
            }
            None => writeln!(out, "holds       {rest} in {objects}, in use or not; {snapshots}")?,
        }
        match (ok, data) {
            (false, _) => {
                let names: BTreeSet<&str> = survey.damage.iter().map(|it| it.name.as_str()).collect();
                writeln!(out, "damaged     in {}", human::counted(names.len() as u64, "object"))?
            }
            (true, true) => {
                writeln!(out, "sound       every byte of {} was read", human::counted(survey.read, "object"))?
            }
            (true, false) => writeln!(out, "sound       as far as heads and sizes tell; --data reads every byte")?,
        }
        human::read_or_not(human::tell(&out))?;
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
