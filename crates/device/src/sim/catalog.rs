// SPDX-License-Identifier: MIT OR Apache-2.0
//! The devices that simulations know by name.

use super::hdd::HddSpec;
use super::kind::ModelSpec;
use super::ssd::{Fill, SsdSpec};
use super::volume::{Burst, VolumeSpec};

/// A device that can be had.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The name in scenarios.
    pub name: &'static str,
    /// The summary for people.
    pub summary: &'static str,
    /// The model.
    pub model: ModelSpec,
    /// The size.
    pub size_bytes: u64,
}

/// All known devices.
#[must_use]
pub fn known() -> Vec<Known> {
    let hdd = ModelSpec::Hdd(HddSpec::default());
    let uncached = ModelSpec::Hdd(HddSpec { write_cache_bytes: 0, ..HddSpec::default() });
    let (hdd_bytes, ssd_bytes, nvme_bytes) = (7_814_037_168 * 512, 500_118_192 * 512, 2_000_398_934_016);
    let it = |name, summary, model, size_bytes| Known { name, summary, model, size_bytes };
    let mut all = vec![
        it("wd-re-4tb", "hard disk, 4 TB, 7200 rpm, write cache on (calibrated)", hdd, hdd_bytes),
        it("wd-re-4tb-uncached", "the same, write cache off", uncached, hdd_bytes),
        it(
            "samsung-850-pro",
            "SATA SSD, 256 GB, erased before use (calibrated)",
            ModelSpec::Ssd(SsdSpec::samsung_850_pro(Fill::Clean)),
            ssd_bytes,
        ),
        it(
            "samsung-850-pro-full",
            "the same, all of it written before (calibrated)",
            ModelSpec::Ssd(SsdSpec::samsung_850_pro(Fill::Full)),
            ssd_bytes,
        ),
        it(
            "samsung-840-pro",
            "SATA SSD, 256 GB, on a port of 3 Gbit/s (calibrated)",
            ModelSpec::Ssd(SsdSpec::samsung_840_pro()),
            ssd_bytes,
        ),
        it(
            "intel-p4500",
            "NVMe SSD, 2 TB, power-loss protection, all of it written before (after its data sheet)",
            ModelSpec::Ssd(SsdSpec::intel_p4500(Fill::Full)),
            nvme_bytes,
        ),
    ];
    all.extend(volumes());
    all
}

/// Network volumes. The first three are made up, as far apart as such volumes are. The others are
/// sold with these bounds; their round trips are assumed where nobody publishes any
/// (docs/laboratory/models.md has the sources).
fn volumes() -> impl Iterator<Item = Known> {
    const GIB: u64 = 1 << 30;
    const MIB: u64 = 1 << 20;
    let it = |name, summary, spec, size_bytes| Known { name, summary, model: ModelSpec::Volume(spec), size_bytes };
    let sold = |round_trip_ns, ios_per_s, bytes_per_s| VolumeSpec {
        bytes_per_s,
        ..VolumeSpec::plain(round_trip_ns, ios_per_s)
    };
    let gp2 = Burst { ios_per_s: 3000, bytes_per_s: 128 * MIB, credits: 5_400_000 };
    // Half an hour of what is beyond the bound of the long run.
    let p10 = Burst { ios_per_s: 3500, bytes_per_s: 170_000_000, credits: 3000 * 1800 };
    [
        it("volume-500us", "network volume, 0.5 ms away, 16,000 I/Os/s", VolumeSpec::plain(500_000, 16_000), 4 << 40),
        it("volume-5ms", "network volume, 5 ms away, 3,000 I/Os/s", VolumeSpec::plain(5_000_000, 3000), 4 << 40),
        it("volume-50ms", "network volume, 50 ms away, 3,000 I/Os/s", VolumeSpec::plain(50_000_000, 3000), 4 << 40),
        it(
            "ebs-gp2-100",
            "AWS EBS gp2, 100 GiB: 300 I/Os/s, 3,000 in bursts",
            VolumeSpec { burst: Some(gp2), ..sold(1_000_000, 300, 128 * MIB) },
            100 * GIB,
        ),
        it("ebs-gp3", "AWS EBS gp3 as it comes: 3,000 I/Os/s", sold(1_000_000, 3000, 125 * MIB), 500 * GIB),
        it("ebs-io2", "AWS EBS io2 with 16,000 I/Os/s", sold(500_000, 16_000, 1000 * MIB), 500 * GIB),
        it("google-pd-balanced-500", "Google PD balanced, 500 GiB", sold(1_000_000, 6000, 280 * MIB), 500 * GIB),
        it("google-hyperdisk", "Google Hyperdisk Balanced as it comes", sold(1_000_000, 3000, 140 * MIB), 500 * GIB),
        it(
            "azure-p10",
            "Azure Premium SSD P10, 128 GiB: 500 I/Os/s, 3,500 in bursts",
            VolumeSpec { burst: Some(p10), ..sold(1_000_000, 500, 100_000_000) },
            128 * GIB,
        ),
        it("azure-premium-v2", "Azure Premium SSD v2 as it comes", sold(1_000_000, 3000, 125_000_000), 500 * GIB),
    ]
    .into_iter()
}
