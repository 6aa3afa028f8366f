// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counts: in the guest by its kernel and the caches, outside by our daemon, and on the models.

use crate::run::Failed;

/// Bytes: read from the disk, written to it, read from the SSD, written to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moved(pub(super) [u64; 4]);

/// A phase of the job.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Phase {
    pub(super) name: String,
    /// Requests of fio a second.
    pub(super) iops: u64,
    /// Reads that the cache could answer, and that it couldn't, as it counts them.
    pub(super) hits: Option<[u64; 2]>,
    /// Reads and writes.
    pub(super) disk_ios: [u64; 2],
    pub(super) ssd_ios: [u64; 2],
    pub(super) moved: Moved,
}

/// All counters at a moment.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    /// Reads, sectors read, writes, sectors written.
    ssd: [u64; 4],
    disk: [u64; 4],
    hits: Option<[u64; 2]>,
}

/// The report of one system.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) system: &'static str,
    pub(super) phases: Vec<Phase>,
    before: Counters,
    now: Counters,
    iops: u64,
}

impl Report {
    pub(super) fn new(system: &'static str) -> Self {
        Self { system, phases: Vec::new(), before: Counters::default(), now: Counters::default(), iops: 0 }
    }

    /// Whether our daemon has to be asked at this line.
    pub(super) fn wants_status(&self, line: &str) -> bool {
        line.starts_with("disk ")
    }

    /// A line of the guest; with what our daemon said then.
    pub(super) fn hear(&mut self, line: &str, status: Option<&str>) -> Result<(), Failed> {
        if let Some(status) = status {
            self.now = of_status(status)?;
        }
        let words: Vec<&str> = line.split(' ').collect();
        let number = |nth: usize| words.get(nth).and_then(|word| word.parse::<u64>().ok()).unwrap_or_default();
        match words[0] {
            "begin" => self.before = self.now,
            // Ours has one disk in the guest, which tells nothing of the two outside.
            "disk" if self.system != "flashfront" => {
                let counted = [2, 3, 4, 5].map(number);
                // A device alone is counted as a disk, as the simulator does; the other one is idle
                // then.
                let disk = if self.system == "ssd" { "vda" } else { "vdb" };
                let side = if words[1] == disk { &mut self.now.disk } else { &mut self.now.ssd };
                *side = counted;
            }
            "cache" => self.now.hits = Some([1, 2].map(number)),
            "phase" => self.iops = number(3) + number(6),
            "done" => self.phases.push(self.phase(words[1])),
            _ => {}
        }
        Ok(())
    }

    fn phase(&self, name: &str) -> Phase {
        let since = |now: [u64; 4], before: [u64; 4]| [0, 1, 2, 3].map(|nth| now[nth] - before[nth]);
        let (disk, ssd) = (since(self.now.disk, self.before.disk), since(self.now.ssd, self.before.ssd));
        let hits = self.now.hits.map(|now| {
            let before = self.before.hits.unwrap_or_default();
            [now[0] - before[0], now[1] - before[1]]
        });
        Phase {
            name: name.to_owned(),
            iops: self.iops,
            hits,
            disk_ios: [disk[0], disk[2]],
            ssd_ios: [ssd[0], ssd[2]],
            moved: Moved([disk[1], disk[3], ssd[1], ssd[3]].map(|sectors| sectors * 512)),
        }
    }
}

/// Reads our daemon's counters from `status --json`.
fn of_status(json: &str) -> Result<Counters, Failed> {
    let status = crate::bench::parse(json)?;
    let number = |key: &str| {
        let number = status[key].as_u64();
        number.ok_or_else(|| Failed::Usage(format!("the daemon's status has no `{key}`: {json}")))
    };
    let sectors = |key| Ok::<u64, Failed>(number(key)? / 512);
    Ok(Counters {
        ssd: [
            number("cache_reads")?,
            sectors("cache_reads_bytes")?,
            number("cache_writes")?,
            sectors("cache_writes_bytes")?,
        ],
        disk: [
            number("origin_reads")?,
            sectors("origin_reads_bytes")?,
            number("origin_writes")?,
            sectors("origin_writes_bytes")?,
        ],
        hits: Some([number("read_hits")?, number("read_misses")?]),
    })
}

/// The names of a job's phases: its sections.
pub(super) fn phases(job: &str) -> Vec<String> {
    let sections = job.lines().filter_map(|line| line.strip_prefix('[')?.strip_suffix(']'));
    sections.filter(|name| *name != "global").map(str::to_owned).collect()
}

/// Returns the job for the models' run of that number: the first as it is, the others with other
/// random numbers. Options that mean nothing in virtual time are left out.
pub(super) fn reseeded(job: &str, nth: u64) -> String {
    let mut seed = 1000 * nth;
    let kept = |line: &&str| *line != "group_reporting" && (nth == 0 || !line.starts_with("randseed="));
    let line = |line: &str| {
        if nth > 0 && line.starts_with('[') && line != "[global]" {
            seed += 1;
            format!("{line}\nrandseed={seed}\n")
        } else {
            format!("{line}\n")
        }
    };
    job.lines().filter(kept).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_s_counters_become_phases() {
        let mut report = Report::new("bcache");
        for line in [
            "disk vda 10 100 20 200",
            "disk vdb 1 8 0 0",
            "begin cold",
            "phase cold 131072 2393 13691 0 0 0",
            "disk vda 30 300 25 210",
            "disk vdb 3 24 2 16",
            "cache 40 2",
            "done cold",
        ] {
            assert!(report.wants_status(line) == line.starts_with("disk"));
            report.hear(line, None).unwrap();
        }
        let cold = &report.phases[0];
        assert_eq!((cold.iops, cold.hits, cold.disk_ios, cold.ssd_ios), (2393, Some([40, 2]), [2, 2], [20, 5]));
        assert_eq!(cold.moved, Moved([16 * 512, 16 * 512, 200 * 512, 10 * 512]));
    }

    #[test]
    fn a_daemon_s_status_and_a_job_are_read() {
        let mut report = Report::new("flashfront");
        let status = |hits: u64, misses: u64, read: u64| {
            format!(
                "{{\"read_hits\": {hits},\"read_misses\":{misses},\"origin_reads\":{hits},\"origin_reads_bytes\":{read},\
                 \"origin_writes\":0,\"origin_writes_bytes\":0,\"cache_reads\":0,\"cache_reads_bytes\":0,\
                 \"cache_writes\":0,\"cache_writes_bytes\":0}}"
            )
        };
        report.hear("disk vda 1 2 3 4", Some(&status(1, 1, 512))).unwrap();
        report.hear("begin cold", None).unwrap();
        report.hear("disk vda 1 2 3 4", Some(&status(4, 2, 1536))).unwrap();
        report.hear("done cold", None).unwrap();
        assert!(report.hear("disk vda 1 2 3 4", Some("{}")).is_err());
        let phase = &report.phases[0];
        assert_eq!((phase.hits, phase.disk_ios, phase.moved), (Some([3, 1]), [3, 0], Moved([1024, 0, 0, 0])));
        assert_eq!(phases("[global]\na=b\n[cold]\n[warm]\n"), ["cold", "warm"]);
        let job = "[global]\na=b\ngroup_reporting\n[cold]\n[warm]\nrandseed=7\n";
        assert_eq!(reseeded(job, 0), "[global]\na=b\n[cold]\n[warm]\nrandseed=7\n");
        assert_eq!(reseeded(job, 2), "[global]\na=b\n[cold]\nrandseed=2001\n[warm]\nrandseed=2002\n");
    }
}
