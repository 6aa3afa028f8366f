// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront sim calibrate`: the device models beside published measurements.

use std::process::ExitCode;

use clap::Args;
use flashfront_sim::calibrate::{self, Row};
use serde::Serialize;

use crate::columns::Columns;
use crate::{human, progress};

/// Run the device models against what was measured on the real devices.
///
/// Each row is a fio job that was run on a bare disk or SSD and published. It has the KiB/s (reads
/// and writes together) as published, and by the model. The simulations of caches rest on these
/// models.
#[derive(Debug, Args)]
pub(crate) struct Calibrate {
    /// Print one JSON array of all rows.
    #[arg(long)]
    json: bool,
}

/// A row, as scripts read it. Figures are in KiB/s.
#[derive(Debug, Serialize)]
struct Line<'a> {
    device: &'a str,
    job: &'a str,
    published: f64,
    simulated: f64,
}

impl<'a> Line<'a> {
    fn of(row: &'a Row) -> Self {
        Self { device: row.device, job: &row.job, published: row.published, simulated: row.simulated }
    }
}

impl Calibrate {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let bar = progress::of_share("simulating", calibrate::total_bytes());
        let rows = calibrate::rows(&mut |bytes| bar.inc(bytes));
        bar.finish_and_clear();
        if self.json {
            human::print_json(&rows.iter().map(Line::of).collect::<Vec<_>>())?;
        } else {
            human::tell(&table(&rows))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn table(rows: &[Row]) -> String {
    let mut table = Columns::new(["device", "job"], ["published", "simulated", "ratio"]);
    for Row { device, job, published, simulated } in rows {
        let figures = [format!("{published:.0}"), format!("{simulated:.0}"), format!("{:.3}", simulated / published)];
        table.row([(*device).to_owned(), (*job).to_owned()].into_iter().chain(figures));
    }
    table.text() + "KiB/s, reads and writes together\n"
}
