// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures processor time and memory of the shadow where it costs most. There, one block in 32 is
//! in its sample, and nearly all of them miss.
//!
//! cargo run --release -p flashfront-sim --example shadow_cost

use flashfront_device::Rng;
use flashfront_engine::policy;
use flashfront_engine::shadow::{Access, Found, Live, Shadow};
use flashfront_sim::policy::flashfront::shape_before_disk;

const COUNT: u64 = 20_000_000;
/// The largest cache of which a 32nd is in the sample.
const CACHE_BLOCKS: usize = 1 << 19;
const ORIGIN_BLOCKS: u64 = 1 << 23;

/// Time that this process has had a CPU so far, in nanoseconds: a busy machine doesn't count.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    stat.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

fn main() {
    let mut shadow = Shadow::new(shape_before_disk(CACHE_BLOCKS), policy::ALL[0].build);
    let mut rng = Rng::new(1);
    for (name, access) in [("write", Access::Write), ("read", Access::Read)] {
        let keys: Vec<u64> = (0..COUNT).map(|_| rng.below(ORIGIN_BLOCKS)).collect();
        let begun = cpu_ns();
        for key in keys {
            shadow.note(access, key..key + 1, || Live { found: Found::default(), reads_around: true });
        }
        let ns = (cpu_ns() - begun) as f64 / COUNT as f64;
        println!("{name}: {ns:.1} ns a block, {} KiB", shadow.bytes() >> 10);
    }
}
