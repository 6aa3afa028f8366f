// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront repair`: makes a damaged cache sound again, and says what is lost.

use std::fmt::Write;
use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgGroup, Args};
use flashfront_serve::failure::state_path;
use flashfront_serve::offline::{Older, Repair as Plan, RepairReport};

use crate::{human, progress};

/// Make a damaged cache sound again: keep all that verifies, and list what is lost.
///
/// Reads everything, says what is damaged and what would become of it, and asks before it changes
/// anything. What is lost is listed by volume and sector: from then on the origin's older data is
/// read there. A sound cache is left alone. The origin is not needed, and not touched.
///
/// If a commit of the log is gone, nobody knows which blocks it wrote. Dirty blocks that are older
/// than it are then either still the newest version, or superseded by it, and perhaps newer on the
/// origin. Only you can decide: --keep-older or --drop-older. The same goes for all dirty blocks of
/// a cache whose device failed.
///
/// Exit code 0: nothing to repair, or repaired. 1: not repaired (with --dry-run: there is something
/// to repair).
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("unasked").args(["yes", "dry_run"])), after_help = "\
Before: stop using the origin, and copy the cache device if you can (dd if=CACHE of=COPY bs=1M).
Examples:
  flashfront repair /dev/nvme0n1p4 --dry-run
  flashfront repair /dev/nvme0n1p4
  flashfront repair /dev/nvme0n1p4 --yes --drop-older --json")]
pub(crate) struct Repair {
    /// The cache device.
    #[arg(value_name = "CACHE")]
    cache: PathBuf,
    /// Show what a repair would do, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Folder that remembers changed origins and failed caches: that of `serve` [default: as for
    /// `serve`].
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Don't ask.
    #[arg(long)]
    yes: bool,
    /// Keep dirty blocks that are older than something lost; they will be written to the origin.
    #[arg(long)]
    keep_older: bool,
    /// Give up dirty blocks that are older than something lost.
    #[arg(long, conflicts_with = "keep_older")]
    drop_older: bool,
    /// Print the result as JSON; needs --yes or --dry-run.
    #[arg(long, requires = "unasked")]
    json: bool,
}

/// The last word of a repair.
const REPAIRED: &str = "repaired    the next `flashfront serve` opens it; `flashfront check` shows it sound\n";

impl Repair {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let older = match (self.keep_older, self.drop_older) {
            (true, _) => Some(Older::Keep),
            (_, true) => Some(Older::Drop),
            _ => None,
        };
        let bar = progress::of_share("reading", 0);
        let state = self.state.or_else(state_path);
        let plan =
            Plan::plan(&self.cache, state.as_deref(), !self.dry_run, &mut |done, all| progress::show(&bar, done, all));
        bar.finish_and_clear();
        let mut plan = plan?;
        plan.look_up_changes(state.as_deref())?;
        let report = plan.report().clone();
        let asks = report.needed && !self.yes && !self.dry_run;
        if asks && !std::io::stdin().is_terminal() {
            // It may have taken hours to find out.
            eprint!("{}", text(&report, older)?);
            anyhow::bail!(
                "nothing was changed: stdin is no terminal, so nobody can be asked; --dry-run shows what a repair would do, --yes does it"
            );
        }
        if !self.json {
            human::read_or_not(human::tell(&text(&report, older)?))?;
        }
        let undecided = report.older_blocks > 0 && older.is_none();
        let report = if !report.needed || self.dry_run {
            report
        } else if undecided {
            if self.json {
                human::read_or_not(human::print_json(&report))?;
            }
            anyhow::bail!(
                "nothing was changed: {} may be older than what is lost; say --keep-older or --drop-older (`flashfront repair --help` explains)",
                human::counted(report.older_blocks, "dirty block")
            );
        } else if asks && !agreed()? {
            anyhow::bail!("nothing was changed");
        } else {
            plan.write(older)?
        };
        if self.json {
            human::read_or_not(human::print_json(&report))?;
        } else if report.repaired {
            human::read_or_not(human::tell(REPAIRED))?;
        }
        Ok(if report.needed && !report.repaired { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

fn agreed() -> anyhow::Result<bool> {
    // The question is no output for scripts.
    eprint!("Repair this cache? What is listed as lost is then gone for good. [yes/no] ");
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(answer.trim().eq_ignore_ascii_case("yes"))
}

fn text(report: &RepairReport, older: Option<Older>) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    writeln!(out, "cache       {} ({})", report.cache.display(), report.uuid)?;
    for change in &report.origins_changed {
        writeln!(
            out,
            "NEWER       the origin {} was changed without this cache ({}): what is dirty here is older, and `flashfront serve` will refuse it",
            change.origin, change.at
        )?;
    }
    if !report.needed {
        writeln!(out, "sound       nothing to repair")?;
        return Ok(out);
    }
    // A device that failed in the last run need not be damaged.
    if !report.damage.is_empty() {
        writeln!(
            out,
            "damaged     in {}; `flashfront check` lists them",
            human::counted(report.damage.len() as u64, "place")
        )?;
    }
    if report.cache_failed {
        writeln!(
            out,
            "FAILED      its device failed in the last run: what is dirty here may be newer on the origin. Replace the device if it may fail again"
        )?;
    }
    writeln!(
        out,
        "keeps       {} dirty, {} clean; drops {} clean, which the origin has",
        human::blocks(report.dirty_kept),
        human::blocks(report.clean_kept),
        human::blocks(report.clean_dropped)
    )?;
    out += &human::lost("LOST", &report.lost);
    for gap in &report.unknown {
        writeln!(
            out,
            "LOST        up to {} of commits {} to {} of lane {}; which ones is not known. Older versions of them may be on the origin, and among the older blocks below",
            human::counted(gap.blocks_at_most, "block"),
            gap.first_commit,
            gap.last_commit,
            gap.lane
        )?;
    }
    if report.unknown_entries > 0 {
        writeln!(
            out,
            "LOST        entries of a checkpoint: {}; the dirty ones among them are listed below where a commit's header still speaks for them, perhaps with more that were not dirty any more",
            human::count(report.unknown_entries)
        )?;
    }
    out += &human::lost("OLDER", &report.older);
    if report.older_blocks > 0 {
        let what = match older {
            Some(Older::Keep) => "kept, and will be written over what the origin has",
            Some(Older::Drop) => "dropped: the origin's data is read there",
            None => {
                "kept by --keep-older (written over what the origin has, even if that is newer), or dropped by --drop-older (lost, where they are the newest)"
            }
        };
        writeln!(
            out,
            "older       {} of dirty data ({}) may have been superseded by what is lost: {what}",
            human::blocks(report.older_blocks),
            human::counted(report.older_blocks, "block")
        )?;
    }
    let nothing = report.lost_blocks == 0 && report.unknown.is_empty() && report.older_blocks == 0;
    if nothing {
        writeln!(out, "lost        nothing")?;
    } else {
        writeln!(out, "then        check the file system on the volume (fsck), as after a disk that lost writes")?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use flashfront_serve::offline::UnknownLoss;
    use flashfront_serve::report::LostRange;

    use super::*;

    #[test]
    fn what_is_lost_is_told_and_what_is_to_be_decided() {
        let sound = RepairReport::default();
        assert!(text(&sound, None).unwrap().contains("nothing to repair"));
        let healed = RepairReport { needed: true, clean_dropped: 3, ..RepairReport::default() };
        let said = text(&healed, None).unwrap();
        assert!(said.contains("lost        nothing") && said.contains("12.0 KiB clean"), "{said}");
        assert!(!said.contains("0 places"), "{said}");
        let range = |lba| vec![LostRange { origin: "data".to_owned(), lba, blocks: 1 }];
        let gap = UnknownLoss { lane: 0, first_commit: 7, last_commit: 7, blocks_at_most: 10 };
        let report = RepairReport {
            needed: true,
            lost_blocks: 1,
            lost: range(80),
            older_blocks: 1,
            older: range(160),
            unknown: vec![gap],
            ..RepairReport::default()
        };
        let said = text(&report, None).unwrap();
        for part in
            ["8 sectors from 80", "8 sectors from 160", "up to 10 blocks of commits 7 to 7", "--keep-older", "fsck"]
        {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(text(&report, Some(Older::Drop)).unwrap().contains("dropped: the origin's"));
    }
}
