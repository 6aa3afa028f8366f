// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront format`: makes a cache for an origin.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use flashfront_engine::Mode;
use flashfront_serve::config::Size;
use flashfront_serve::offline::{self, FormatOptions, FormatReport};

use crate::{choice, human};

/// Make a cache: prepare a fast device for use in front of an origin.
///
/// The origin is only read, and keeps what it holds. Everything on the cache device is destroyed;
/// if anything is recognised there, format refuses and names it.
#[derive(Debug, Args)]
pub(crate) struct Format {
    /// The cache device: a block device or a file on something fast.
    #[arg(long, value_name = "PATH")]
    cache: PathBuf,
    /// A second cache device, on other hardware: it gets a copy of what is dirty, so that either
    /// may die.
    #[arg(long, value_name = "PATH")]
    mirror: Option<PathBuf>,
    /// The origin: a block device, a file, the URI of an NBD export (nbd://HOST/EXPORT), or the
    /// URL of a volume in an object store (s3://BUCKET/NAME).
    #[arg(long, value_name = "PATH")]
    origin: PathBuf,
    /// How writes are treated; can be changed at any time with `set`.
    #[arg(long, default_value = Mode::default().name(), value_parser = choice::mode())]
    mode: Mode,
    /// The volume's name.
    #[arg(long, default_value = "data")]
    name: String,
    /// Destroy what is on the cache device.
    #[arg(long)]
    force: bool,
    /// Segment size, a power of two from 64 KiB to 16 MiB [default: 1 MiB, less on small devices].
    #[arg(long, value_name = "SIZE")]
    segment: Option<Size>,
    /// Independent logs, fixed for the life of the cache [default: 1, 4 from 64 GiB on].
    #[arg(long, value_name = "N")]
    lanes: Option<u32>,
    /// Do not discard (TRIM) a block device first; for thin volumes that are to keep their space.
    #[arg(long)]
    no_discard: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

impl Format {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let report = offline::format(&FormatOptions {
            cache: self.cache,
            mirror: self.mirror,
            origin: self.origin,
            name: self.name,
            mode: self.mode,
            force: self.force,
            segment: self.segment,
            lanes: self.lanes,
            discard: !self.no_discard,
        })?;
        if self.json {
            human::print_json(&report)?;
        } else {
            human::tell(&text(&report)?)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn text(report: &FormatReport) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    for destroyed in &report.destroyed {
        writeln!(out, "destroyed   {destroyed}")?;
    }
    writeln!(out, "cache       {} ({})", report.cache.display(), human::bytes(report.cache_bytes))?;
    if let Some(mirror) = &report.mirror {
        writeln!(out, "mirror      {} (dirty data is on both)", mirror.display())?;
    }
    writeln!(out, "origin      {} ({})", report.origin.display(), human::bytes(report.origin_bytes))?;
    writeln!(out, "volume      {}, {}", report.name, report.mode)?;
    let segments = human::count(report.segments);
    writeln!(
        out,
        "log         {segments} segments of {}, {}",
        human::bytes(report.segment_bytes),
        human::counted(report.lanes.into(), "lane")
    )?;
    let (room, index) = (human::blocks(report.capacity_blocks), human::bytes(report.index_bytes));
    writeln!(out, "room for    {room}, with an index of {index} in RAM")?;
    if report.discarded_bytes > 0 {
        writeln!(out, "discarded   {} (TRIM): the device may reuse it", human::bytes(report.discarded_bytes))?;
    }
    writeln!(out, "uuid        {}", report.uuid)?;
    for notice in &report.notices {
        writeln!(out, "note        {notice}")?;
    }
    let (cache, origin) = (human::quoted(&report.cache), human::quoted(&report.origin));
    let mirror = report.mirror.as_ref().map_or_else(String::new, |it| format!(" --mirror {}", human::quoted(it)));
    writeln!(
        out,
        "next        flashfront serve --cache {cache}{mirror} --origin {origin} --nbd unix:/run/flashfront-nbd.sock"
    )?;
    Ok(out)
}
