// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront volume`: the volumes of a cache, while a daemon serves them or while it is stopped.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, Subcommand};
use flashfront_device::real::{is_in_store, is_uri};
use flashfront_engine::format::{OriginRecord, Shares};
use flashfront_engine::{BLOCK_BYTES, DirtyOnRemove, Mode};
use flashfront_serve::control::{Client, Command, Dirty};
use flashfront_serve::failure;
use flashfront_serve::offline::{AddOptions, SetOptions, Volumes};
use flashfront_serve::report::{StatusReport, VolumeReport};
use serde::Serialize;

use crate::columns::Columns;
use crate::interrupt::Interrupt;
use crate::status::{Socket, connect};
use crate::usage::misused;
use crate::{choice, human, progress};

mod grow;
mod limits;
mod place;

use grow::Grow;
use limits::Limits;
use place::Place;

/// List, show and change the volumes of a cache: of a running daemon, or with --cache of a stopped
/// one.
#[derive(Debug, Args)]
pub(crate) struct Volume {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    List(List),
    Show(Show),
    Set(Set),
    Add(Add),
    Remove(Remove),
    Rename(Rename),
    Grow(Grow),
    Convert(Convert),
}

/// List the volumes.
#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    place: Place,
    /// Print a list in one line of JSON.
    #[arg(long)]
    json: bool,
}

/// Show all that is known of a volume.
#[derive(Debug, Args)]
struct Show {
    /// The volume.
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    socket: Socket,
    /// Print one line of JSON: what `status --json` has of the volume.
    #[arg(long)]
    json: bool,
}

/// Change a volume; it stays so.
#[derive(Debug, Args)]
#[command(override_usage = "flashfront volume set [OPTIONS] NAME")]
#[group(id = "what", required = true, multiple = true, args = ["mode", "read_only", "writable", "share_min", "share_max", "weight", "dirty_limit", "dirty_age", "sequential_bypass", "read_around"])]
struct Set {
    /// The volume.
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    place: Place,
    /// How writes are treated from now on.
    #[arg(long, value_parser = choice::mode())]
    mode: Option<Mode>,
    /// Clients may not write. Those who are connected get an error when they do.
    #[arg(long, conflicts_with = "writable")]
    read_only: bool,
    /// Clients may write. Those who are connected must connect once more to know it.
    #[arg(long)]
    writable: bool,
    #[command(flatten)]
    shares: Limits,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Add a volume: put the cache in front of one more origin.
///
/// The origin is only read, and must not be in use. Clients find the volume at once, wherever the
/// daemon listens.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  flashfront volume add --name home --origin /dev/disk/by-id/ata-home")]
struct Add {
    /// The name by which clients choose it.
    #[arg(long)]
    name: String,
    /// The origin: a block device, a file, the URI of an NBD export, or the URL of a volume in an
    /// object store.
    #[arg(long, value_name = "PATH")]
    origin: PathBuf,
    /// How writes are treated.
    #[arg(long, default_value = Mode::default().name(), value_parser = choice::mode())]
    mode: Mode,
    /// Clients may not write.
    #[arg(long)]
    read_only: bool,
    #[command(flatten)]
    shares: Limits,
    #[command(flatten)]
    place: Place,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Remove a volume: take the cache off one origin, which is complete by itself then.
///
/// A volume with dirty data or with clients stays, unless you say what is to become of them.
#[derive(Debug, Args)]
struct Remove {
    /// The volume.
    #[arg(value_name = "NAME")]
    name: String,
    /// Write its dirty data to the origin first. Clients are served no more meanwhile.
    #[arg(long, conflicts_with = "discard_dirty")]
    destage: bool,
    /// Give its dirty data up, for ever: the origin lacks its newest writes then.
    #[arg(long)]
    discard_dirty: bool,
    /// Remove it although it has clients: they get I/O errors.
    #[arg(long)]
    disconnect: bool,
    #[command(flatten)]
    place: Place,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Give a volume another name; clients that are connected stay.
#[derive(Debug, Args)]
struct Rename {
    /// The volume.
    #[arg(value_name = "NAME")]
    name: String,
    /// Its new name.
    #[arg(value_name = "NEW")]
    to: String,
    #[command(flatten)]
    place: Place,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Convert a stopped cache of format version 1, so that its volumes can be changed.
///
/// What it holds stays. A power cut meanwhile harms nothing. An older program can't open the cache
/// afterwards.
#[derive(Debug, Args)]
struct Convert {
    /// The cache device.
    #[arg(long, value_name = "PATH")]
    cache: PathBuf,
    /// The second cache device, if there are two.
    #[arg(long, value_name = "PATH")]
    mirror: Option<PathBuf>,
    /// Folder for the memory of failed cache devices, as of `serve`.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// A volume in the list, for scripts.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    name: &'a str,
    id: u32,
    origin_path: &'a str,
    size_bytes: u64,
    mode: &'a str,
    /// None of a stopped cache: only its log knows.
    blocks_cached: Option<u64>,
    blocks_dirty: u64,
    read_only: bool,
    /// The volume is being removed: its dirty data is destaged first.
    removing: bool,
    share_min_bytes: u64,
    share_max_bytes: u64,
    uris: &'a [String],
}

impl<'a> Listed<'a> {
    fn new(volume: &'a VolumeReport) -> Self {
        Self {
            name: &volume.name,
            id: volume.id,
            origin_path: &volume.origin_path,
            size_bytes: volume.size_bytes,
            mode: &volume.mode,
            blocks_cached: Some(volume.blocks_cached),
            blocks_dirty: volume.blocks_dirty,
            read_only: volume.read_only,
            removing: volume.removing,
            share_min_bytes: volume.share_min_bytes,
            share_max_bytes: volume.share_max_bytes,
            uris: &volume.uris,
        }
    }

    /// A volume of a stopped cache.
    fn stopped(record: &'a OriginRecord) -> Self {
        Self {
            name: &record.name,
            id: record.id.0,
            origin_path: &record.origin_path,
            size_bytes: record.size_bytes,
            mode: record.mode.name(),
            blocks_cached: None,
            blocks_dirty: record.dirty_blocks,
            read_only: record.read_only,
            removing: false,
            share_min_bytes: record.shares.min_bytes,
            share_max_bytes: record.shares.max_bytes,
            uris: &[],
        }
    }
}

/// A change that is done, for scripts.
#[derive(Debug, Serialize)]
struct Done {
    done: bool,
    seconds: f64,
}

impl Volume {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.verb {
            Verb::List(verb) => verb.run(),
            Verb::Show(verb) => verb.run(),
            Verb::Set(verb) => verb.run(),
            Verb::Add(verb) => verb.run(),
            Verb::Remove(verb) => verb.run(),
            Verb::Rename(verb) => verb.run(),
            Verb::Grow(verb) => verb.run(),
            Verb::Convert(verb) => verb.run(),
        }?;
        Ok(ExitCode::SUCCESS)
    }
}

impl List {
    fn run(self) -> anyhow::Result<()> {
        if let Some(stopped) = self.place.stopped(false)? {
            return self.tell(&stopped.superblock().origins.iter().map(Listed::stopped).collect::<Vec<_>>());
        }
        let report = connect(&self.place.socket())?.status()?;
        self.tell(&report.volumes.iter().map(Listed::new).collect::<Vec<_>>())
    }

    fn tell(&self, volumes: &[Listed<'_>]) -> anyhow::Result<()> {
        if self.json { human::print_json(&volumes) } else { human::print(&listed(volumes)) }
    }
}

fn listed(volumes: &[Listed<'_>]) -> String {
    let mut table = Columns::new(["volume", "mode"], ["size", "cached", "dirty"]);
    for it in volumes {
        let cached = it.blocks_cached.map_or_else(|| "-".to_owned(), human::blocks);
        let [size, dirty] = [human::bytes(it.size_bytes), human::blocks(it.blocks_dirty)];
        let [access, end] =
            [(it.read_only, ", read-only"), (it.removing, ", removing")].map(|(is, told)| if is { told } else { "" });
        table.row([it.name.to_owned(), format!("{}{access}{end}", it.mode), size, cached, dirty]);
    }
    table.text()
}

impl Show {
    fn run(self) -> anyhow::Result<()> {
        let report = connect(&self.socket.path())?.status()?;
        let Some(volume) = report.volumes.iter().find(|volume| volume.name == self.name) else {
            let known: Vec<&str> = report.volumes.iter().map(|volume| volume.name.as_str()).collect();
            misused!("no volume `{}`; there are: {}", self.name, known.join(", "));
        };
        if self.json {
            return human::print_json(volume);
        }
        human::print(&shown(volume, &report)?)
    }
}

/// A volume for people.
fn shown(volume: &VolumeReport, report: &StatusReport) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    writeln!(out, "volume      {} (id {})", volume.name, volume.id)?;
    writeln!(out, "origin      {}, {}", volume.origin_path, human::bytes(volume.size_bytes))?;
    if let Some(bytes) = volume.origin_bytes {
        writeln!(out, "            {}", human::resized(&volume.name, volume.size_bytes, bytes))?;
    }
    for uri in &volume.uris {
        writeln!(out, "at          {uri}")?;
    }
    let access = if volume.read_only { ", read-only" } else { "" };
    writeln!(out, "mode        {}, durability {}{access}", volume.mode, volume.durability)?;
    let [cached, dirty] = [volume.blocks_cached, volume.blocks_dirty].map(human::blocks);
    writeln!(out, "cached      {cached}, of which {dirty} are dirty")?;
    if let Some(limits) = limits::told(volume) {
        writeln!(out, "limits      {limits}")?;
    }
    let spared = human::bytes(volume.hit_bytes);
    let all: u64 = report.recent.day.hit_bytes;
    let part = (all > 0).then(|| volume.recent.day.hit_bytes as f64 / all as f64);
    writeln!(out, "gain        {spared} since the start; of the last day's of all volumes {}", human::percent(part))?;
    writeln!(out, "wear        {} written to the cache device", human::bytes(volume.flash_written_bytes))?;
    let mut table = Columns::new(["in the last"], ["hits", "misses", "writes", "read", "written", "p99 of hits"]);
    let recent = &volume.recent;
    for (name, window) in [("minute", &recent.minute), ("hour", &recent.hour), ("day", &recent.day)] {
        let [hits, misses, writes] =
            [window.hit_requests, window.miss_requests, window.write_requests].map(human::count);
        let read = human::bytes(window.hit_bytes + window.miss_bytes);
        let p99 = human::latency(window.latency_us.hit.p99.ns());
        table.row([name.to_owned(), hits, misses, writes, read, human::bytes(window.written_bytes), p99]);
    }
    writeln!(out, "\n{}", table.text().trim_end())?;
    Ok(out)
}

impl Set {
    fn run(self) -> anyhow::Result<()> {
        if let Some(mut stopped) = self.place.stopped(true)? {
            let started = Instant::now();
            let read_only = (self.read_only || self.writable).then_some(self.read_only);
            let asked = self.shares.asked();
            let superblock = stopped.superblock();
            let record = superblock.origins.iter().find(|record| record.name == self.name);
            let shares = record.filter(|_| asked.is_some()).map(|record| asked.of(record.shares, superblock));
            stopped.set(&self.name, &SetOptions { mode: self.mode, read_only, shares, ..SetOptions::default() })?;
            return done(started, self.json);
        }
        let change = Change::begin(&self.place, self.json)?;
        let mut commands = Vec::new();
        if self.read_only || self.writable {
            commands.push(Command::SetReadOnly { volume: self.name.clone(), read_only: self.read_only });
        }
        if self.shares.asked().is_some() {
            commands.push(Command::SetShares { volume: self.name.clone(), shares: self.shares.asked() });
        }
        if self.mode.is_some() {
            let (volume, mode) = (Some(self.name), self.mode);
            commands.push(Command::Set { volume, mode, dirty_limit: None, sequential_bypass: None });
        }
        change.carry_out(&commands)
    }
}

impl Add {
    fn run(self) -> anyhow::Result<()> {
        // The daemon may run in another folder.
        let origin = if is_uri(&self.origin) { self.origin.clone() } else { std::path::absolute(&self.origin)? };
        if let Some(mut stopped) = self.place.stopped(true)? {
            let started = Instant::now();
            let (name, mode, read_only) = (self.name, self.mode, self.read_only);
            let shares = self.shares.asked().of(Shares::default(), stopped.superblock());
            stopped.add(&AddOptions { name, origin, mode, read_only, shares })?;
            return done(started, self.json);
        }
        let mut change = Change::begin(&self.place, self.json)?;
        let (name, mode, read_only, shares) = (self.name, Some(self.mode), self.read_only, self.shares.asked());
        let is_in_store = is_in_store(&origin);
        change.client.call(&Command::AddVolume { name: name.clone(), origin, mode, read_only, shares })?;
        if is_in_store {
            let status = change.client.status()?;
            let free = |it: &&VolumeReport| it.name == name && !it.read_only && it.destage == "free";
            if status.volumes.iter().any(|it| free(&it)) {
                eprintln!(
                    "flashfront: volume {name}: this daemon destages in free order, so until a restart the store alone is no state in which the volume was; start the daemon anew when that suits, or with --destage ordered from the beginning"
                );
            }
        }
        change.end()
    }
}

impl Remove {
    fn run(self) -> anyhow::Result<()> {
        if let Some(mut stopped) = self.place.stopped(true)? {
            if self.destage {
                misused!(
                    "a stopped cache can't destage one volume alone: `flashfront destage` does so for all of them"
                );
            }
            let started = Instant::now();
            let dirty = if self.discard_dirty { DirtyOnRemove::Discard } else { DirtyOnRemove::Refuse };
            stopped.remove(&self.name, dirty, &mut |_, _| {})?;
            return done(started, self.json);
        }
        let dirty = match (self.destage, self.discard_dirty) {
            (true, _) => Dirty::Destage,
            (_, true) => Dirty::Discard,
            (false, false) => Dirty::Refuse,
        };
        let mut change = Change::begin(&self.place, self.json)?;
        let interrupt = Interrupt::new()?;
        change.client.call(&Command::RemoveVolume { volume: self.name.clone(), dirty, disconnect: self.disconnect })?;
        let bar = progress::of_bytes("destaging");
        let mut most = 0;
        loop {
            let report = change.client.status()?;
            let Some(volume) = report.volumes.iter().find(|volume| volume.name == self.name) else { break };
            if !volume.removing {
                anyhow::bail!("volume `{}` was not removed; see the daemon's log", self.name);
            }
            most = volume.blocks_dirty.max(most);
            progress::show(&bar, (most - volume.blocks_dirty) * BLOCK_BYTES, most * BLOCK_BYTES);
            if interrupt.wait(progress::LOOK_EVERY) {
                bar.finish_and_clear();
                anyhow::bail!(
                    "the daemon goes on destaging and removes it then; `flashfront volume list` shows it until it is gone"
                );
            }
        }
        bar.finish_and_clear();
        change.end()
    }
}

impl Rename {
    fn run(self) -> anyhow::Result<()> {
        if let Some(mut stopped) = self.place.stopped(true)? {
            let started = Instant::now();
            stopped.rename(&self.name, &self.to)?;
            return done(started, self.json);
        }
        let change = Change::begin(&self.place, self.json)?;
        change.carry_out(&[Command::RenameVolume { volume: self.name, name: self.to }])
    }
}

/// A change of a running daemon, and how long it takes.
struct Change {
    client: Client,
    started: Instant,
    json: bool,
}

impl Change {
    fn begin(place: &Place, json: bool) -> anyhow::Result<Self> {
        Ok(Self { client: connect(&place.socket())?, started: Instant::now(), json })
    }

    fn carry_out(mut self, commands: &[Command]) -> anyhow::Result<()> {
        for command in commands {
            self.client.call(command)?;
        }
        self.end()
    }

    fn end(self) -> anyhow::Result<()> {
        done(self.started, self.json)
    }
}

pub(crate) fn done(started: Instant, json: bool) -> anyhow::Result<()> {
    if json { human::print_json(&Done { done: true, seconds: started.elapsed().as_secs_f64() }) } else { Ok(()) }
}

impl Convert {
    fn run(self) -> anyhow::Result<()> {
        let started = Instant::now();
        let state = self.state.or_else(failure::state_path);
        let mut stopped = Volumes::open(&self.cache, self.mirror.as_deref(), state.as_deref(), true)?;
        let most = stopped.convert()?;
        if !self.json {
            human::tell(&format!("converted: the cache has room for {} now\n", human::counted(most as u64, "volume")))?;
        }
        done(started, self.json)
    }
}
