// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real and simulated figures beside each other.

use std::fmt::Write as _;

use super::counted::{Phase, Report};
use super::simulated::{Simulated, Spread};
use super::{HDD_BYTES, JOB, RUNS, SSD_BYTES, SYSTEMS};
use crate::run::Failed;

/// Beyond this a model counts as wrong, unless it does the same with other random numbers.
const OFF_PERCENT: f64 = 15.0;
const MIB: f64 = (1 << 20) as f64;

/// How a model's figure stands to the real one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Near,
    /// Within what the model does with other random numbers.
    Chance,
    Off,
}

fn verdict(real: f64, simulated: Spread) -> Verdict {
    let [least, median, most] = [simulated.least, simulated.median, simulated.most].map(|bytes| bytes as f64 / MIB);
    let apart = (real - median).abs();
    if apart <= 1.0 || apart * 100.0 <= OFF_PERCENT * real {
        Verdict::Near
    } else if (least..=most).contains(&real) {
        Verdict::Chance
    } else {
        Verdict::Off
    }
}

/// Real and simulated figures, as Markdown; how many are near each other, of those that are more
/// than nothing.
pub(super) fn table(reports: &[Report], simulated: &Simulated) -> Result<String, Failed> {
    let mut text = format!(
        "The job {JOB} on an SSD of {} MiB before a disk of {} MiB, emulated (Samsung 850 PRO, WD Re 4 TB). MiB: in the guest / on the model, the median of \
         {RUNS} runs with different random numbers; bold: more than {OFF_PERCENT} % apart (and more than 1 MiB), with what the model's runs span.\n\n\
         | system | phase | IOPS | read hits | reads, writes of the disk | of the SSD | read from disk | written to disk | read from SSD | written to SSD |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
        SSD_BYTES >> 20,
        HDD_BYTES >> 20
    );
    let mut verdicts = Vec::new();
    for report in reports {
        let model = SYSTEMS.iter().find(|(name, _)| *name == report.system).and_then(|(_, model)| *model);
        for phase in &report.phases {
            let spreads = model.and_then(|model| simulated.of(model, &phase.name));
            if let (Some(model), None) = (model, spreads) {
                return Err(Failed::Usage(format!("the simulator says nothing of {model} in phase {}", phase.name)));
            }
            let _ = write!(text, "| {} | {} | {} | {} |", report.system, phase.name, phase.iops, hits(phase));
            for [reads, writes] in [phase.disk_ios, phase.ssd_ios] {
                let _ = write!(text, " {reads}, {writes} |");
            }
            for (nth, real) in phase.moved.0.iter().enumerate() {
                let real = *real as f64 / MIB;
                let Some(spread) = spreads.map(|spreads| spreads[nth]) else {
                    let _ = write!(text, " {real:.1} |");
                    continue;
                };
                let [least, median, most] = [spread.least, spread.median, spread.most].map(|bytes| bytes as f64 / MIB);
                let verdict = verdict(real, spread);
                // Devices alone tell of no model of a cache.
                if real.max(median) > 1.0 && !["hdd", "ssd"].contains(&report.system) {
                    verdicts.push(verdict);
                }
                let _ = match verdict {
                    Verdict::Near => write!(text, " {real:.1} / {median:.1} |"),
                    _ => write!(text, " **{real:.1} / {median:.1}** ({least:.1} to {most:.1}) |"),
                };
            }
            text.push('\n');
        }
    }
    let of = |wanted| verdicts.iter().filter(|verdict| **verdict == wanted).count();
    let _ = writeln!(
        text,
        "\n{} of {} figures (all of caches that are more than 1 MiB) are within {OFF_PERCENT} % of the model's median; {} more are within what its runs span.",
        of(Verdict::Near),
        verdicts.len(),
        of(Verdict::Chance)
    );
    Ok(text)
}

fn hits(phase: &Phase) -> String {
    match phase.hits {
        Some([hits, misses]) if hits + misses > 0 => format!("{:.1} %", hits as f64 * 100.0 / (hits + misses) as f64),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_that_the_model_has_with_other_random_numbers_is_chance() {
        let spread = Spread { least: 20 << 20, median: 30 << 20, most: 40 << 20 };
        let verdicts = [34.0, 22.0, 19.0, 41.0].map(|real| verdict(real, spread));
        assert!(matches!(verdicts, [Verdict::Near, Verdict::Chance, Verdict::Off, Verdict::Off]));
        let nothing = Spread { least: 0, median: 1 << 19, most: 1 << 20 };
        assert!(verdict(1.4, nothing) == Verdict::Near, "next to nothing on both");
    }
}
