// SPDX-License-Identifier: MIT OR Apache-2.0
//! A long job in which nothing changes any more need not be simulated to its end. A day of hits at
//! the SSD's speed is 9 billion requests, all alike.

use super::result::{Interval, SETTLED};

/// Whether nothing changes any more.
pub(super) fn has_settled(series: &[Interval]) -> bool {
    let windows: Vec<&[Interval]> = series.rchunks(SETTLED).take(4).collect();
    let [third, second, first, before] = windows[..] else { return false };
    let bytes = [first, second, third].map(|window| window.iter().map(Interval::bytes).sum::<u64>());
    let (least, most) = (bytes.into_iter().min().unwrap_or(0), bytes.into_iter().max().unwrap_or(0));
    let (before, after) = (&before[before.len() - 1].traffic, &third[third.len() - 1].traffic);
    let (blocks, hits) = (after.read_blocks - before.read_blocks, after.read_hit_blocks - before.read_hit_blocks);
    let no_cache = after.cache_read_bytes + after.cache_write_bytes == 0;
    (most - least) * 100 <= most && (no_cache || hits * 1000 >= blocks * 999)
}

#[cfg(test)]
mod tests {
    use flashfront_device::sim::{HddSpec, ModelSpec};
    use flashfront_engine::Time;

    use crate::load::{Job, Pattern, run};
    use crate::system::Bare;

    const HOUR_NS: u64 = 3_600_000_000_000;

    #[test]
    fn an_hour_of_the_same_is_told_without_being_simulated() {
        let job = |settles, time_ns| Job {
            pattern: Pattern::Random,
            span_bytes: 1 << 40,
            time_ns,
            settles,
            ..Job::default()
        };
        let phase = |job: Job| {
            let mut disk = Bare::new(ModelSpec::Hdd(HddSpec::default()), 4 << 40);
            run(&mut disk, &mut Time(0), &mut 0, &[job], 10_000_000_000, &mut |_| true).unwrap()
        };
        let (whole, settled) = (phase(job(false, HOUR_NS)), phase(job(true, HOUR_NS)));
        assert!(settled.time_ns < HOUR_NS / 10 && whole.unsimulated_ns == 0, "{}", settled.time_ns);
        let ((all, all_ns), (told, told_ns)) = (whole.bytes_and_ns(), settled.bytes_and_ns());
        assert!((told_ns / all_ns - 1.0).abs() < 0.001, "{told_ns}, {all_ns}");
        assert!((told / all - 1.0).abs() < 0.01, "{told}, {all}");
    }
}
