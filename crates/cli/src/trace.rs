// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a trace is to be read: the options of all verbs that read one.

use std::path::Path;

use clap::Args;
use clap::builder::PossibleValuesParser;
use flashfront_sim::replay::{GridChoice, Source};
use flashfront_sim::trace::{Action, Format, Options};

pub(crate) mod told;

#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// The trace's format, if it can't be told from what is in it.
    #[arg(long, value_name = "F", value_parser = PossibleValuesParser::new(Format::all().map(|it| it.name)))]
    format: Option<String>,
    /// Which events of blktrace and blkparse are requests: queue (Q, as asked for), issue (D, as
    /// the disk got it) or complete (C).
    #[arg(long, value_name = "A", default_value = Action::default().name(), value_parser = PossibleValuesParser::new(Action::ALL.map(Action::name)))]
    action: String,
    /// Stop at the first bad line instead of counting them.
    #[arg(long)]
    strict: bool,
    /// Let each disk's blocks begin where most requests to it do, instead of at multiples of 4 KiB.
    #[arg(long)]
    shift_grid: bool,
    /// Drop requests that repeat an equal one within so many milliseconds, for traces with each
    /// request of several layers.
    #[arg(long, value_name = "MS", allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    drop_echoes: Option<u64>,
}

impl TraceArgs {
    /// A trace, to be read so, with a page cache of so many blocks in front.
    pub(crate) fn source(&self, trace: &Path, page_cache_blocks: u64) -> Source {
        Source {
            path: trace.to_owned(),
            options: Options {
                format: self.format.as_deref().and_then(Format::named),
                strict: self.strict,
                action: Action::ALL.into_iter().find(|it| it.name() == self.action).unwrap_or_default(),
            },
            grid: if self.shift_grid { GridChoice::Detected } else { GridChoice::Aligned },
            echoes_ns: self.drop_echoes.map(|ms| ms * 1_000_000),
            page_cache_blocks,
        }
    }
    /// The options that are given, as on a command line.
    pub(crate) fn words(&self) -> Vec<String> {
        let flags = [("--strict", self.strict), ("--shift-grid", self.shift_grid)];
        let values = [
            ("--format", self.format.clone()),
            ("--action", Some(&self.action).filter(|it| *it != Action::default().name()).cloned()),
            ("--drop-echoes", self.drop_echoes.map(|ms| ms.to_string())),
        ];
        let flags = flags.into_iter().filter(|it| it.1).map(|it| it.0.to_owned());
        flags.chain(values.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value?)))).collect()
    }
}
