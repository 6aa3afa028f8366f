// SPDX-License-Identifier: MIT OR Apache-2.0
//! The results of the models for the job, and for the same job with other random numbers: so much
//! of a difference is chance.
//!
//! No field of the table is quoted, so lines are split by hand and not by the crate csv. xtask is
//! built before anything else, and has few crates.

use super::counted::Moved;
use crate::run::Failed;

/// Each system's phases, with what was moved in each of the runs.
#[derive(Debug, Default)]
pub(super) struct Simulated(Vec<(String, String, Vec<Moved>)>);

/// A figure over all runs, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spread {
    pub(super) least: u64,
    pub(super) median: u64,
    pub(super) most: u64,
}

impl Simulated {
    /// Adds a run: the simulator's CSV.
    pub(super) fn add(&mut self, csv: &str) -> Result<(), Failed> {
        for (system, phase, moved) in read(csv)? {
            let known = self.0.iter_mut().find(|(known, name, _)| *known == system && *name == phase);
            match known {
                Some((_, _, runs)) => runs.push(moved),
                None => self.0.push((system, phase, vec![moved])),
            }
        }
        Ok(())
    }

    /// The figures of a system's phase, as [`Moved`] has them.
    pub(super) fn of(&self, system: &str, phase: &str) -> Option<[Spread; 4]> {
        let (_, _, runs) = self.0.iter().find(|(known, name, _)| known == system && name == phase)?;
        Some([0, 1, 2, 3].map(|nth| {
            let mut figures: Vec<u64> = runs.iter().map(|run| run.0[nth]).collect();
            figures.sort_unstable();
            Spread { least: figures[0], median: figures[figures.len() / 2], most: figures[figures.len() - 1] }
        }))
    }
}

/// System, phase, and what was moved.
fn read(csv: &str) -> Result<Vec<(String, String, Moved)>, Failed> {
    let mut lines = csv.lines();
    let head: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let columns = ["origin_read_bytes", "origin_write_bytes", "cache_read_bytes", "cache_write_bytes"];
    let columns = columns.map(|name| head.iter().position(|column| *column == name));
    let [Some(a), Some(b), Some(c), Some(d)] = columns else {
        return Err(Failed::Usage(format!("the simulator's CSV has other columns than expected: {}", head.join(","))));
    };
    let columns = [a, b, c, d];
    let mut all: Vec<(String, String, Moved)> = Vec::new();
    for line in lines {
        let words: Vec<&str> = line.split(',').collect();
        let moved =
            columns.map(|column| words.get(column).and_then(|word| word.parse::<u64>().ok()).unwrap_or_default());
        match all.last_mut() {
            Some((system, phase, sum)) if *system == words[0] && *phase == words[1] => {
                (0..4).for_each(|nth| sum.0[nth] += moved[nth]);
            }
            _ => all.push((words[0].to_owned(), words[1].to_owned(), Moved(moved))),
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_summed_up_by_phase_and_spread() {
        let head = "system,phase,end_s,origin_read_bytes,origin_write_bytes,cache_read_bytes,cache_write_bytes\n";
        let mut simulated = Simulated::default();
        assert!(simulated.add("system,phase\n").is_err());
        for read in [5, 1, 9] {
            simulated.add(&format!("{head}a,x,1,{read},2,3,4\na,x,2,10,20,30,40\na,y,1,5,0,0,0\n")).unwrap();
        }
        let [read, written, ..] = simulated.of("a", "x").unwrap();
        assert_eq!(read, Spread { least: 11, median: 15, most: 19 });
        assert_eq!(written, Spread { least: 22, median: 22, most: 22 });
        assert_eq!(simulated.of("b", "x"), None);
    }
}
